import { expect, test } from "vitest";
import type { SideCell } from "./side.js";
import { judge, markdownTable, type Round } from "./verdict.js";

const CELL: SideCell = { calls: 100, p50Ms: 1, p99Ms: 2, callsPerSecond: 1000, flushes: 200, serverUs: 100, hostUs: 50 };

function round(brain: Partial<SideCell>, foreignCpu = 0): Round {
  const both = (cell: SideCell): Map<number, SideCell> => new Map([1, 128].map((inFlight) => [inFlight, cell]));
  return { cells: { floor: both(CELL), brain: both({ ...CELL, ...brain }) }, foreignCpu };
}

test("the median of the rounds is judged, so that one disturbed round decides nothing", () => {
  const { lines } = judge([round({ p50Ms: 1.5 }), round({ p50Ms: 9, callsPerSecond: 10 }), round({ p50Ms: 1.6 })]);
  expect(lines[0]).toBe("PASS  p50 at 1 in flight is 1.60x the floor (at most 2x)");
  expect(lines[1]).toBe("PASS  rate at 128 in flight is 1.00x the floor (at least 0.4x)");
});

test("a missed target is said and is no failure of the run", () => {
  const { lines, flushesExact } = judge([round({ p50Ms: 2.5, callsPerSecond: 300 })]);
  expect(lines[0]).toMatch(/^FAIL {2}p50 .* 2\.50x/);
  expect(lines[1]).toMatch(/^FAIL {2}rate .* 0\.30x/);
  expect(flushesExact).toBe(true);
});

test("one flush too many in any round fails the run", () => {
  const { lines, flushesExact } = judge([round({}), round({ flushes: 201 }), round({})]);
  expect(flushesExact).toBe(false);
  expect(lines[2]).toBe("FAIL  2.003333 flushes per call at 1 in flight (exactly 2)");
});

test("a run without a call counts no flushes and fails", () => {
  expect(judge([round({ calls: 0, flushes: 0 })]).flushesExact).toBe(false);
});

test("figures of a busy machine are marked, and an unknown load is not", () => {
  expect(judge([round({}, 0.02), round({}, 0.6)]).lines.at(-1)).toMatch(/^NOTE .* up to 60 %/);
  expect(judge([round({}, Number.NaN)]).lines.at(-1)).not.toMatch(/^NOTE/);
});

test("the table has a row for each side and one for their ratio, at every number of calls in flight", () => {
  const rows = markdownTable([round({ p50Ms: 1.5 })], [1, 128])
    .trim()
    .split("\n");
  expect(rows).toHaveLength(2 + 2 * 3);
  expect(rows[4]).toBe("| 1 | brain / floor | 1.50x | 1.00x | 1.00x | 1.00x | 1.00x | |");
});
