import { createHash } from "node:crypto";
import {
  type Environment,
  EnvironmentSchema,
  FilesystemAccess,
  type Implementation,
  ImplementationSchema,
  type ToolDefinition,
  type ToolPlacement,
  ToolPlacementSchema,
} from "@aexhq/brain-proto";
import { create, equals } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { LIMITS } from "../config.js";
import { buildCatalogue, type Catalogue, type EnvironmentKind, restoreCatalogue } from "./catalogue.js";
import { Refusal } from "./refusal.js";

const EVERY_KIND: ReadonlySet<EnvironmentKind> = new Set(["host", "brain", "remote"]);
const OBJECT = '{"type":"object"}';

function hostEnvironment(name: string, hostId = "host-1"): Environment {
  return create(EnvironmentSchema, { name, kind: { case: "host", value: { hostId } } });
}

function brainEnvironment(name: string, workspace: FilesystemAccess, network: string[] = []): Environment {
  return create(EnvironmentSchema, { name, kind: { case: "brain", value: { filesystem: { workspace }, network } } });
}

function remoteEnvironment(name: string, url: string, configurationJson = ""): Environment {
  return create(EnvironmentSchema, { name, kind: { case: "remote", value: { url, configurationJson } } });
}

const hostFunction = (): Implementation => create(ImplementationSchema, { kind: { case: "hostFunction", value: {} } });
const descriptor = (value: string): Implementation => create(ImplementationSchema, { kind: { case: "descriptorJson", value } });
const component = (): Implementation => create(ImplementationSchema, { kind: { case: "component", value: { sha256: "c".repeat(64) } } });

interface Declared {
  readonly name?: string;
  readonly description?: string;
  readonly input?: string;
  readonly output?: string;
  readonly environment?: string;
  readonly configuration?: string;
  readonly implementation?: Implementation;
}

function placement(declared: Declared = {}): ToolPlacement {
  const {
    name = "read",
    description = "Read one file.",
    input = OBJECT,
    environment = "app",
    configuration = "",
    implementation = hostFunction(),
  } = declared;
  const tool = {
    name,
    description,
    inputSchemaJson: input,
    ...(declared.output === undefined ? {} : { outputSchemaJson: declared.output }),
  };
  return create(ToolPlacementSchema, { tool, environment, configurationJson: configuration, implementation });
}

function build(environments: readonly Environment[], tools: readonly ToolPlacement[], supported = EVERY_KIND): Catalogue {
  return buildCatalogue(environments, tools, supported);
}

/** Two placements of one Tool, in Environments `a` and `b`. */
function twice(first: Declared, second: Declared): Catalogue {
  return build(
    [hostEnvironment("a"), hostEnvironment("b")],
    [placement({ ...first, environment: "a" }), placement({ ...second, environment: "b" })],
  );
}

function refusal(make: () => unknown): Refusal {
  try {
    make();
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

describe("names", () => {
  const good = ["a", "A", "get_item-2", "_", "-", "0", "x".repeat(64), "__proto__", "constructor", "toString", "hasOwnProperty"];
  const bad = ["", " ", "a b", " a", "a.b", "a/b", "../x", "é", "e\u0301", "x".repeat(65), "x".repeat(300), "a\u0000", "a\n", "\ud800"];

  it.each(good)("accepts %j for a Tool and an Environment, lists it unchanged and finds it", (name) => {
    const catalogue = build([hostEnvironment(name)], [placement({ name, environment: name })]);
    expect(catalogue.environments.map((environment) => environment.name)).toEqual([name]);
    expect(catalogue.tools.map((tool) => [tool.tool?.name, tool.environment])).toEqual([[name, name]]);
    expect(catalogue.find(name, name)?.definition.name).toBe(name);
  });

  it.each(bad)("refuses %j for an Environment and for a Tool, naming the field and the name", (name) => {
    const environment = refusal(() => build([hostEnvironment("a"), hostEnvironment(name)], []));
    expect(environment).toMatchObject({ reason: "invalid_argument", metadata: { field: "environments[1].name" } });
    const tool = refusal(() => build([hostEnvironment("app")], [placement(), placement({ name })]));
    expect(tool).toMatchObject({ reason: "invalid_argument", metadata: { field: "tools[1].tool.name" } });
    for (const { message } of [environment, tool]) {
      expect(message).toContain(JSON.stringify(name.slice(0, 80)).slice(0, -1));
      expect(message).toContain("A-Z a-z 0-9 _ -");
    }
  });

  it("keeps names apart that differ only in case", () => {
    const catalogue = build(
      [hostEnvironment("app"), hostEnvironment("App")],
      [placement({ name: "a" }), placement({ name: "A", input: "true" }), placement({ name: "a", environment: "App" })],
    );
    expect(catalogue.find("a", "app")?.definition.inputSchemaJson).toBe(OBJECT);
    expect(catalogue.find("A", "app")?.definition.inputSchemaJson).toBe("true");
    expect(catalogue.find("A", "App")).toBeUndefined();
  });

  it("finds no Tool that has the name of something every object has", () => {
    const catalogue = build([hostEnvironment("app")], [placement()]);
    for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty", ""]) {
      expect(catalogue.find(name, "app")).toBeUndefined();
      expect(catalogue.find("read", name)).toBeUndefined();
    }
  });

  it("finds nothing by a name that is put together to look like another pair", () => {
    const catalogue = build([hostEnvironment("app")], [placement()]);
    expect(catalogue.find("read/app", "")).toBeUndefined();
    expect(catalogue.find("", "read/app")).toBeUndefined();
  });
});

describe("Environments", () => {
  it("are one when two equal ones have one name", () => {
    const catalogue = build(
      [
        hostEnvironment("app"),
        hostEnvironment("app"),
        brainEnvironment("wasm", FilesystemAccess.READ),
        brainEnvironment("wasm", FilesystemAccess.READ),
      ],
      [placement()],
    );
    expect(catalogue.environments.map(({ name }) => name)).toEqual(["app", "wasm"]);
  });

  const differing: readonly (readonly [string, Environment, Environment])[] = [
    ["hosts", hostEnvironment("local", "host-1"), hostEnvironment("local", "host-2")],
    ["kinds", hostEnvironment("local", "host-1"), remoteEnvironment("local", "https://a.example")],
    ["grants of folders", brainEnvironment("local", FilesystemAccess.READ), brainEnvironment("local", FilesystemAccess.WRITE)],
    [
      "grants of network",
      brainEnvironment("local", FilesystemAccess.READ),
      brainEnvironment("local", FilesystemAccess.READ, ["https://a.example"]),
    ],
    ["URLs", remoteEnvironment("local", "https://a.example"), remoteEnvironment("local", "https://b.example")],
    ["settings", remoteEnvironment("local", "https://a.example", "{}"), remoteEnvironment("local", "https://a.example", '{"x":1}')],
    [
      "parts, though put together they read the same",
      remoteEnvironment("local", "https://a.example/ {}", ""),
      remoteEnvironment("local", "https://a.example/", "{} "),
    ],
  ];
  it.each(differing)("of one name that differ in their %s are refused, naming both", (_, first, second) => {
    const { reason, message, metadata } = refusal(() => build([first, second], []));
    expect(reason).toBe("environment_conflict");
    expect(metadata).toEqual({ environment: "local" });
    expect(message).toMatch(/^Environment local is declared twice, as (.+) and as (.+); give one of them another name$/);
    const [, one, other] = / as (.+) and as (.+);/.exec(message) ?? [];
    expect(one).not.toBe(other);
  });

  it("of a kind the server does not run are refused, naming Environment and kind", () => {
    const { reason, message, metadata } = refusal(() =>
      build([hostEnvironment("app"), brainEnvironment("wasm", FilesystemAccess.READ)], [], new Set(["host"])),
    );
    expect(reason).toBe("environment_unsupported");
    expect(message).toMatch(/Environment wasm is of kind brain/);
    expect(metadata).toEqual({ environment: "wasm", kind: "brain" });
  });

  it("without a kind are refused, naming the Environment and what to set", () => {
    const { reason, message } = refusal(() => build([create(EnvironmentSchema, { name: "app" })], []));
    expect(reason).toBe("invalid_argument");
    expect(message).toMatch(/Environment app has no kind; set one of host, brain, remote/);
  });
});

describe("placements", () => {
  it("of one Tool in several Environments are one definition with an implementation and options each", () => {
    const catalogue = build(
      [hostEnvironment("local"), remoteEnvironment("away", "https://a.example")],
      [
        placement({ environment: "local", configuration: '{"depth": 1}' }),
        placement({ environment: "away", configuration: '{"depth":2}', implementation: descriptor('{"image":"x"}') }),
      ],
    );
    expect(catalogue.find("read", "local")).toMatchObject({
      configurationJson: '{"depth":1}',
      implementation: { kind: { case: "hostFunction" } },
    });
    expect(catalogue.find("read", "away")).toMatchObject({
      configurationJson: '{"depth":2}',
      implementation: { kind: { value: '{"image":"x"}' } },
    });
    expect(catalogue.placements.map(({ environment }) => environment.name)).toEqual(["local", "away"]);
  });

  it("of a pair declared twice are refused, naming Tool and Environment, also when they are equal", () => {
    const { reason, message, metadata } = refusal(() => build([hostEnvironment("app")], [placement(), placement()]));
    expect(reason).toBe("placement_duplicate");
    expect(message).toBe("Tool read is placed twice in Environment app; place it once");
    expect(metadata).toEqual({ tool: "read", environment: "app" });
  });

  it("nobody declared are not found, whatever else the Tool and the Environment have", () => {
    const catalogue = build(
      [hostEnvironment("a"), hostEnvironment("b")],
      [placement({ environment: "a" }), placement({ name: "write", environment: "b" })],
    );
    expect(catalogue.find("read", "b")).toBeUndefined();
    expect(catalogue.find("write", "a")).toBeUndefined();
  });

  it("in an Environment that is not declared are refused, naming both", () => {
    const { reason, message, metadata } = refusal(() => build([hostEnvironment("app")], [placement({ environment: "App" })]));
    expect(reason).toBe("environment_not_found");
    expect(message).toMatch(/Tool read is placed in Environment "App", which is not among the session's environments/);
    expect(metadata).toEqual({ tool: "read", environment: "App" });
  });

  it("without a Tool or without an implementation are refused, naming what is missing", () => {
    const bare = create(ToolPlacementSchema, { environment: "app", implementation: hostFunction() });
    expect(refusal(() => build([hostEnvironment("app")], [bare]))).toMatchObject({
      reason: "invalid_argument",
      metadata: { field: "tools[0].tool" },
    });
    for (const implementation of [create(ImplementationSchema), undefined]) {
      const given = placement();
      if (implementation === undefined) delete given.implementation;
      else given.implementation = implementation;
      const { reason, message } = refusal(() => build([hostEnvironment("app")], [given]));
      expect(reason).toBe("invalid_argument");
      expect(message).toMatch(/Tool read in Environment app has none; set host_function, component or descriptor_json/);
    }
  });

  const environments = [
    hostEnvironment("host"),
    brainEnvironment("brain", FilesystemAccess.READ),
    remoteEnvironment("remote", "https://a.example"),
  ];
  const fitting: Readonly<Record<string, () => Implementation>> = { host: hostFunction, brain: component, remote: () => descriptor("{}") };
  for (const environment of ["host", "brain", "remote"]) {
    for (const [kind, implementation] of Object.entries(fitting)) {
      const place = (): Catalogue => build(environments, [placement({ environment, implementation: implementation() })]);
      if (kind === environment)
        it(`run in an Environment of kind ${environment} what is made for it`, () => expect(place().placements).toHaveLength(1));
      else {
        it(`of what runs in ${kind} are refused in an Environment of kind ${environment}, naming both and where it belongs`, () => {
          const { reason, message, metadata } = refusal(place);
          expect(reason).toBe("implementation_mismatch");
          expect(message).toMatch(
            new RegExp(`Tool read has a \\w+ implementation, .* Environment ${environment} of kind ${environment}; .* of kind ${kind}$`),
          );
          expect(metadata).toEqual({ tool: "read", environment });
        });
      }
    }
  }

  it("have {} for options when they name none", () => {
    expect(build([hostEnvironment("app")], [placement()]).placements[0]?.configurationJson).toBe("{}");
  });

  it("with options that are no JSON are refused, naming Tool and Environment", () => {
    const { reason, message, metadata } = refusal(() => build([hostEnvironment("app")], [placement({ configuration: "{depth:1}" })]));
    expect(reason).toBe("invalid_argument");
    expect(message).toMatch(/of Tool read in Environment app: /);
    expect(metadata).toEqual({ field: "configuration_json" });
  });
});

describe("definitions of one Tool", () => {
  const schema = '{"type":"object","properties":{"path":{"type":"string"}}}';

  it("agree when only the order of members and the white space of a schema differ", () => {
    const moved = ' { "properties" : { "path" : { "type":"string" } }, "type":"object" } ';
    expect(twice({ input: schema, output: schema }, { input: moved, output: moved }).placements).toHaveLength(2);
  });

  it("agree when only the options differ: options belong to the placement", () => {
    expect(twice({ configuration: '{"depth":1}' }, { configuration: '{"depth":2}' }).placements).toHaveLength(2);
  });

  const disagreeing: readonly (readonly [string, Declared, Declared, RegExp])[] = [
    [
      "by one blank in the description",
      { description: "Read one file." },
      { description: "Read one  file." },
      /description "Read one file\." and "Read one {2}file\."/,
    ],
    [
      "by an optional field more",
      { input: schema },
      { input: schema.replace('"string"}', '"string"},"depth":{"type":"number"}') },
      /the input schema differs at \/properties\/depth/,
    ],
    [
      "by a type deep inside",
      { input: schema },
      { input: schema.replace("string", "number") },
      /the input schema differs at \/properties\/path\/type/,
    ],
    ["by the order of a list", { input: '{"enum":[1,2]}' }, { input: '{"enum":[2,1]}' }, /the input schema differs at \/enum\/0/],
    ["at the root", { input: "true" }, { input: OBJECT }, /the input schema differs at its root/],
    [
      "by a member that every object seems to have",
      { input: "{}" },
      { input: '{"constructor":1}' },
      /the input schema differs at \/constructor/,
    ],
    ["by a member named __proto__", { input: "{}" }, { input: '{"__proto__":{"a":1}}' }, /the input schema differs at \/__proto__/],
    ["by a name with a slash and a tilde", { input: "{}" }, { input: '{"a/b~c":1}' }, /the input schema differs at \/a~1b~0c/],
    ["by an output schema that only one has", {}, { output: "true" }, /only one of them has an output schema/],
    ["by their output schemas", { output: '{"type":"string"}' }, { output: '{"type":"null"}' }, /the output schema differs at \/type/],
  ];
  it.each(disagreeing)("that differ %s are refused, naming the Tool, both Environments and the place", (_, first, second, where) => {
    const { reason, message, metadata } = refusal(() => twice(first, second));
    expect(reason).toBe("definition_conflict");
    expect(message).toMatch(/^Tool read is defined differently in Environments a and b: /);
    expect(message).toMatch(where);
    expect(metadata).toEqual({ tool: "read", environment: "b" });
  });

  it.each(["input", "output"] as const)("whose %s schema is no JSON, or no schema by its shape, are refused, naming the Tool", (which) => {
    for (const text of ["", "{", '{"a":1,"a":2}', "1", "null", '"object"', "[]"]) {
      const { reason, message, metadata } = refusal(() => build([hostEnvironment("app")], [placement({ [which]: text })]));
      expect(reason).toBe("invalid_schema");
      expect(message).toMatch(new RegExp(`the ${which} schema of Tool read is not`));
      expect(metadata).toEqual({ tool: "read" });
    }
  });
});

describe("the canonical definition", () => {
  const canonical = (declared: Declared): string =>
    build([hostEnvironment("app")], [placement(declared)]).placements[0]?.canonicalDefinition ?? "";

  it("is the RFC 8785 text of name, description and schemas as JSON values", () => {
    expect(canonical({ input: '{"type":"object","maxProperties":1e1}' })).toBe(
      '{"description":"Read one file.","input_schema":{"maxProperties":10,"type":"object"},"name":"read"}',
    );
    expect(canonical({ output: "true" })).toBe(
      '{"description":"Read one file.","input_schema":{"type":"object"},"name":"read","output_schema":true}',
    );
  });

  it("gives one SHA-256 however the schema was written", () => {
    const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
    const digests = [
      '{"type":"object","required":["a"],"properties":{"a":{},"b":{}}}',
      '{ "properties": {"b":{}, "a":{}}, "required": ["a"], "type": "object" }',
    ].map((input) => sha256(canonical({ input })));
    expect(new Set(digests).size).toBe(1);
    expect(sha256(canonical({ input: "true" }))).not.toBe(digests[0]);
  });

  it("keeps a member named __proto__", () => {
    expect(canonical({ input: '{"__proto__":{"a":1}}' })).toContain('"input_schema":{"__proto__":{"a":1}}');
  });
});

describe("budgets", () => {
  const schemaOf = (bytes: number): string => `{"$comment":"${"x".repeat(bytes - '{"$comment":""}'.length)}"}`;

  it("allow a schema, a description and options of exactly their size, and not one byte more", () => {
    const place = (declared: Declared): Catalogue => build([hostEnvironment("app")], [placement(declared)]);
    expect(place({ input: schemaOf(LIMITS.schemaBytes) }).placements).toHaveLength(1);
    expect(refusal(() => place({ input: schemaOf(LIMITS.schemaBytes + 1) }))).toMatchObject({
      reason: "invalid_schema",
      metadata: { tool: "read" },
    });
    const description = "é".repeat(LIMITS.descriptionBytes / 2);
    expect(place({ description }).placements).toHaveLength(1);
    expect(refusal(() => place({ description: `${description}x` })).message).toMatch(/of Tool read is 65537 bytes; at most 65536/);
    const configuration = JSON.stringify("x".repeat(LIMITS.configurationBytes - 2));
    expect(place({ configuration }).placements).toHaveLength(1);
    expect(refusal(() => place({ configuration: `${configuration} ` })).message).toMatch(
      /configuration_json: of Tool read in Environment app: /,
    );
  });

  it("count options and descriptor together", () => {
    const place = (descriptorBytes: number, configurationBytes: number): Catalogue =>
      build(
        [remoteEnvironment("away", "https://a.example")],
        [
          placement({
            environment: "away",
            implementation: descriptor(JSON.stringify("x".repeat(descriptorBytes - 2))),
            configuration: JSON.stringify("x".repeat(configurationBytes - 2)),
          }),
        ],
      );
    expect(place(LIMITS.configurationBytes - 100, 100).placements).toHaveLength(1);
    expect(refusal(() => place(LIMITS.configurationBytes - 100, 101))).toMatchObject({ reason: "invalid_argument" });
    const { message } = refusal(() => place(LIMITS.configurationBytes + 1, 2));
    expect(message).toMatch(/descriptor_json: of Tool read in Environment away/);
    expect(message).not.toMatch(/-\d/);
  });

  it("bound the catalogue as a whole, Environments included, saying how large it is", () => {
    const tools = Array.from({ length: 4 }, (_, index) => placement({ name: `t${index}`, input: schemaOf(LIMITS.schemaBytes - 10_000) }));
    const withDescription = (bytes: number): Catalogue =>
      build([hostEnvironment("app")], [...tools, placement({ description: "x".repeat(bytes) })]);
    const { reason, message } = refusal(() => withDescription(60_000));
    expect(reason).toBe("catalogue_too_large");
    const bytes = Number(/^the Tools and Environments of this session take (\d+) bytes; at most 1048576 are allowed$/.exec(message)?.[1]);
    const room = 60_000 - (bytes - LIMITS.catalogueBytes);
    expect(withDescription(room).placements).toHaveLength(5);
    expect(refusal(() => withDescription(room + 1)).message).toContain(`${LIMITS.catalogueBytes + 1} bytes`);
    expect(refusal(() => build([hostEnvironment("app", "h".repeat(LIMITS.catalogueBytes))], [])).reason).toBe("catalogue_too_large");
  });

  it("keep every refusal short, however long what a stranger declares is", () => {
    const long = "x".repeat(200_000);
    const refusals = [
      () => build([hostEnvironment(long)], []),
      () => build([hostEnvironment("a", `${long}1`), hostEnvironment("a", `${long}2`)], []),
      () => build([brainEnvironment("a", FilesystemAccess.READ, [long]), brainEnvironment("a", FilesystemAccess.READ)], []),
      () => build([hostEnvironment("app")], [placement({ environment: long })]),
      () => build([hostEnvironment("app")], [placement({ name: long })]),
      () => twice({ input: "{}" }, { input: JSON.stringify({ [long]: true }) }),
      () => build([hostEnvironment("app")], [placement({ configuration: `{"${long}":1,"${long}":2}` })]),
    ].map(refusal);
    for (const { message, metadata } of refusals) expect(message.length + JSON.stringify(metadata).length).toBeLessThan(2000);
  });
});

describe("a catalogue that was built", () => {
  const environments = (): Environment[] => [
    hostEnvironment("app"),
    remoteEnvironment("away", "https://a.example"),
    hostEnvironment("idle"),
  ];
  const tools = (): ToolPlacement[] => [
    placement({ name: "__proto__", input: ' {"b":1, "a":{"__proto__":2}} ', output: "true" }),
    placement({
      name: "__proto__",
      input: '{"a":{"__proto__":2},"b":1}',
      output: "true",
      environment: "away",
      implementation: descriptor('{"image":"x"}'),
      configuration: '{"k":1}',
    }),
    placement(),
  ];

  it("is the same when it is restored from what it lists", () => {
    const built = build(environments(), tools());
    const restored = restoreCatalogue(built.environments, built.tools);
    expect(restored.environments).toEqual(built.environments);
    expect(restored.tools).toEqual(built.tools);
    expect(restored.placements).toEqual(built.placements);
    for (const { definition, environment } of built.placements) {
      expect(restored.find(definition.name, environment.name)).toEqual(built.find(definition.name, environment.name));
    }
    expect(restored.find("read", "away")).toBeUndefined();
  });

  it("does not move when what it was declared with is changed afterwards", () => {
    const givenEnvironments = environments();
    const givenTools = tools();
    const built = build(givenEnvironments, givenTools);
    const untouched = build(environments(), tools());
    for (const environment of givenEnvironments) if (environment.kind.case === "host") environment.kind.value.hostId = "another";
    for (const given of givenTools) {
      const { tool, implementation } = given;
      given.environment = "idle";
      given.configurationJson = '{"k":2}';
      if (tool !== undefined) Object.assign(tool, { inputSchemaJson: "false", description: "Other." } satisfies Partial<ToolDefinition>);
      if (implementation !== undefined) implementation.kind = { case: "descriptorJson", value: '{"image":"y"}' };
    }
    givenTools.push(placement({ name: "more" }));
    expect(
      built.tools.every((tool, index) => equals(ToolPlacementSchema, tool, untouched.tools[index] ?? placement({ name: "none" }))),
    ).toBe(true);
    expect(built.environments).toEqual(untouched.environments);
    expect(built.placements).toEqual(untouched.placements);
  });
});
