import { expect, test } from "vitest";
import { z } from "zod";
import { ServedTools } from "./served-tools.js";
import { declaredTool, tool } from "./tool.js";

const declare = (description = "") => declaredTool(tool({ name: "t", description, input: z.object({}), run: () => null }));

test("a function held for a session wins over the process's, and is forgotten with its session", () => {
  const served = new ServedTools(false);
  const [first, second] = [declare(), declare()];
  served.holdForSession("s1", "app", first);
  served.holdForSession("s2", "app", second);
  expect(served.find("s1", "app", "t")).toBe(first);
  expect(served.find("s2", "app", "t")).toBe(second);
  expect(served.find("s3", "app", "t")).toBe(first);
  expect(served.find("s1", "other", "t")).toBeUndefined();
  served.forgetSession("s2");
  expect(served.find("s2", "app", "t")).toBe(first);
});

test("another function for the same pair is refused for the process, and the same one is not", () => {
  const served = new ServedTools(false);
  const held = declare();
  served.holdForProcess("app", held);
  served.holdForProcess("app", held);
  expect(() => served.holdForProcess("app", declare())).toThrow("served in Environment");
});

test("the only instance of a host names nothing; one of several names each definition once, in a new version", () => {
  const served = new ServedTools(false);
  served.holdForProcess("app", declare());
  expect(served.list()).toEqual([]);
  expect(served.version).toBe(0);
  served.share();
  served.share();
  expect(served.version).toBe(1);
  served.holdForSession("s", "app", declare());
  expect(served.version).toBe(1);
  served.holdForSession("s", "app", declare("changed"));
  expect(served.version).toBe(2);
  expect(served.list().map(({ name, environment }) => `${environment}/${name}`)).toEqual(["app/t", "app/t"]);
});
