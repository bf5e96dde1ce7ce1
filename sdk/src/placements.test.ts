import { describe, expect, test } from "vitest";
import { z } from "zod";
import { hostEnv } from "./environments.js";
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
  test("may put one Tool in several Environments, with options of their own", () => {
    const { environments, tools } = placementMessages(
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

  test("must be placements", () => {
    expect(refusal([read() as unknown as Placement])).toContain("call each Tool with");
  });
});
