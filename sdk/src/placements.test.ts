import { describe, expect, test } from "vitest";
import { z } from "zod";
import { component } from "./component.js";
import { type BrainEnvironment, declaredEnvironment, hostEnv, type RemoteEnvironment } from "./environments.js";
import { isBrainError } from "./errors.js";
import { checkPlacements, placementMessages } from "./placements.js";
import { jsonSchema } from "./schema.js";
import { type Placement, tool } from "./tool.js";

const app = hostEnv({ name: "app" });

function read(description = "Read.", schema: Record<string, unknown> = { type: "object", title: "t" }) {
  return tool({ name: "read", description, input: jsonSchema(schema), options: z.object({ root: z.string() }), run: () => null });
}

function refusal(placements: Placement[]): string {
  try {
    checkPlacements(placements);
  } catch (error) {
    if (isBrainError(error)) return `${error.reason}: ${error.message}`;
    throw error;
  }
  return "accepted";
}

describe("placements of one session", () => {
  test("may put one Tool in several Environments, with options of their own", async () => {
    const { environments, tools } = await placementMessages(
      [read()({ env: app, root: "/a" }), read()({ env: hostEnv({ name: "other", hostId: "h2" }), root: "/b" })],
      "h1",
    );
    expect(environments).toEqual([
      { name: "app", kind: { case: "host", value: { hostId: "h1" } } },
      { name: "other", kind: { case: "host", value: { hostId: "h2" } } },
    ]);
    expect(tools.map(({ environment, configurationJson }) => [environment, configurationJson])).toEqual([
      ["app", '{"root":"/a"}'],
      ["other", '{"root":"/b"}'],
    ]);
  });

  test("are refused when a pair comes twice, naming both", () => {
    expect(refusal([read()({ env: app, root: "/a" }), read()({ env: app, root: "/b" })])).toMatch(/^placement_duplicate.*"read".*"app"/);
  });

  test("are refused when definitions of one name differ, by one blank or one field", () => {
    const placed = (factory: ReturnType<typeof read>, name: string): Placement => factory({ env: hostEnv({ name }), root: "/" });
    const other = refusal([placed(read(), "a"), placed(read("Read. "), "b")]);
    expect(other).toMatch(/^definition_conflict.*"Read\." and "Read\. "/);
    expect(refusal([placed(read(), "a"), placed(read("Read.", { type: "object" }), "b")])).toContain("input schema");
    expect(refusal([placed(read(), "a"), placed(read("Read.", { title: "t", type: "object" }), "b")])).toBe("accepted");
  });

  test("are refused when Environments of one name differ, naming both, while equal ones are one", () => {
    const other = tool({ name: "other", description: "", input: z.object({}), run: () => null });
    const differing = refusal([read()({ env: app, root: "/" }), other({ env: hostEnv({ name: "app", hostId: "h2" }) })]);
    expect(differing).toMatch(/^environment_conflict.*\{"kind":"host","name":"app"\} and .*"h2"/);
    expect(refusal([read()({ env: app, root: "/" }), other({ env: hostEnv({ name: "app" }) })])).toBe("accepted");
  });

  test("are refused where their implementation cannot run, naming Tool, Environment and kind", () => {
    const remote = declaredEnvironment<RemoteEnvironment>({ kind: "remote", name: "far", url: "http://127.0.0.1:1" });
    const sandbox = declaredEnvironment<BrainEnvironment>({ kind: "brain", name: "sandbox" });
    const interpreted = { name: "read", description: "", input: z.object({}) };
    const forms = {
      function: tool({ ...interpreted, run: () => null }),
      Component: tool({ ...interpreted, implementation: component(Uint8Array.of(0)) }),
      implementation: tool({ ...interpreted, implementation: { module: "x" } }),
    } as unknown as Record<string, (placement: { env: unknown }) => Placement>;
    for (const [form, runs] of [
      ["function", app],
      ["Component", sandbox],
      ["implementation", remote],
    ] as const) {
      for (const env of [app, sandbox, remote]) {
        const said = refusal([forms[form]?.({ env }) as Placement]);
        if (env === runs) expect(said).toBe("accepted");
        else expect(said).toMatch(new RegExp(`^implementation_mismatch: Tool "read" .*${form}.*"${env.name}" of kind ${env.kind}`));
      }
    }
  });

  test("travel with what their Environment interprets, and with its grants", async () => {
    const remote = declaredEnvironment<RemoteEnvironment>({ kind: "remote", name: "far", url: "http://127.0.0.1:1" });
    const sandbox = declaredEnvironment<BrainEnvironment>({
      kind: "brain",
      name: "sandbox",
      filesystem: { workspace: "read", scratch: "write" },
      network: ["https://example.com"],
    });
    const far = tool({ name: "far", description: "", input: z.object({}), implementation: { module: "x" } });
    const near = tool({ name: "near", description: "", input: z.object({}), implementation: component(Uint8Array.of(0)) });
    const { environments, tools } = await placementMessages([far({ env: remote }), near({ env: sandbox })], "");
    expect(environments.map(({ kind }) => kind)).toEqual([
      { case: "remote", value: { url: "http://127.0.0.1:1", configurationJson: "" } },
      { case: "brain", value: { filesystem: { workspace: 1, scratch: 2 }, network: ["https://example.com"], secrets: [] } },
    ]);
    expect(tools.map(({ implementation }) => implementation?.kind)).toMatchObject([
      { case: "descriptorJson", value: '{"module":"x"}' },
      // printf '\\0' | sha256sum
      { case: "component", value: { sha256: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d" } },
    ]);
  });

  test("must be placements", () => {
    expect(refusal([read() as unknown as Placement])).toContain("call each Tool with");
  });
});
