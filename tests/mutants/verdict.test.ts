import { describe, expect, test } from "vitest";
import { flawsOf, type Report, type SuiteRun, verdictOf } from "./verdict.js";

type Suite = Report["testResults"][number];
type Test = Suite["assertionResults"][number];

const passed = (fullName: string): Test => ({ fullName, status: "passed", failureMessages: [] });
const failed = (fullName: string, message = "AssertionError: expected 1 to be 2\n  at x.ts"): Test => ({
  fullName,
  status: "failed",
  failureMessages: [message],
});
const skipped = (fullName: string): Test => ({ fullName, status: "skipped", failureMessages: [] });
const suite = (status: string, assertionResults: Test[], message = ""): Suite => ({
  name: "/copy/server/src/a.test.ts",
  status,
  message,
  assertionResults,
});
const run = (testResults: Suite[] | undefined, more: Partial<SuiteRun> = {}): SuiteRun => ({
  exitCode: 0,
  timedOut: false,
  report: testResults === undefined ? undefined : { testResults },
  tail: "the last line",
  ...more,
});

describe("a suite that was run with a fault planted", () => {
  test("kills it by every test that failed", () => {
    const tests = [passed("a one"), failed("a two"), failed("a three")];
    const expected = { type: "killed", by: ["a two", "a three"], why: "AssertionError: expected 1 to be 2" };
    expect(verdictOf(run([suite("failed", tests)], { exitCode: 1 }))).toEqual(expected);
  });

  test("lets it survive when everything that ran has passed", () => {
    expect(verdictOf(run([suite("passed", [passed("a one"), skipped("a two")])]))).toEqual({ type: "survived" });
  });

  test.each([
    ["that could not be read", run([suite("failed", [], "SyntaxError: Unexpected token\n at")], { exitCode: 1 }), "Unexpected token"],
    ["that left no report", run(undefined, { exitCode: 134 }), "code 134 and left no report: the last line"],
    ["that did not end", run(undefined, { exitCode: undefined, timedOut: true }), "too long"],
    ["that failed beside its tests", run([suite("passed", [passed("a one")])], { exitCode: 1 }), "no test failed"],
    ["that ran nothing", run([suite("passed", [skipped("a one")])]), "no test was run"],
    ["in which the planted code cannot run", run([suite("failed", [failed("a", "ReferenceError: x is not defined")])]), "x is not defined"],
  ])("proves nothing when it is one %s", (_, given, why) => {
    expect(verdictOf(given)).toEqual({ type: "broken", why: expect.stringContaining(why) });
  });
});

describe("the suites on the unchanged sources", () => {
  const needed = [{ file: "server/src/a.test.ts", test: "two" }, { file: "server/src/a.test.ts" }];

  test("have no flaw when all pass and every test that is named is among them", () => {
    expect(flawsOf(run([suite("passed", [passed("a one"), passed("a two")])]), needed)).toEqual([]);
  });

  test.each([
    ["a test fails", run([suite("failed", [failed("a one"), passed("a two")])], { exitCode: 1 }), "fails without any fault: a one"],
    ["one cannot be read", run([suite("failed", [], "Error: no such file")], { exitCode: 1 }), "does not run without any fault"],
    ["one is not there", run([]), "was not run: server/src/a.test.ts"],
    ["the named test is not there", run([suite("passed", [passed("a one")])]), '"two"'],
    ["the named test was left out", run([suite("passed", [passed("a one"), skipped("a two")])]), '"two"'],
    ["the runner fails beside them", run([suite("passed", [passed("a two")])], { exitCode: 1 }), "ended with code 1"],
    ["there is no report", run(undefined, { exitCode: 1 }), "left no report"],
    ["they do not end", run(undefined, { timedOut: true }), "too long"],
  ])("have one when %s", (_, given, flaw) => {
    expect(flawsOf(given, needed)).toContainEqual(expect.stringContaining(flaw));
  });
});
