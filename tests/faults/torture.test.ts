import { expect, test } from "vitest";
import { torture } from "../torture/torture.js";

const SEED = 1;

test("real processes keep every promise over 20 rounds of kills, cuts and silences", { timeout: 240_000 }, async () => {
  const report = await torture({ rounds: 20, seed: SEED, parallel: 2 });
  console.log(report.summary());
  expect(report.failures()).toBe("");
  expect(report.isClean).toBe(true);
  expect(report.mostRuns).toBe(1);

  // The rounds have been what they are for.
  const kinds = [...report.kills.keys()];
  expect(kinds).toContain("server at any time");
  expect(kinds).toContain("host at any time");
  expect(kinds.filter((kind) => /^server \w+\./.test(kind)).length).toBeGreaterThan(8);
  expect(kinds.filter((kind) => /^host \w+\./.test(kind)).length).toBeGreaterThan(8);
  expect([...report.cuts.keys()].sort()).toEqual(["end", "freeze", "reset", "slow", "stick"]);
  for (const ending of ["ok", "error tool_error", "cancelled cancel_requested", "timeout deadline_passed", "unknown host_instance_lost"]) {
    expect([...report.endings.keys()]).toContain(ending);
  }
  expect(report.afterServerKill.calls).toBeGreaterThan(0);
  expect(report.broughtBack).toBeGreaterThan(0);
});
