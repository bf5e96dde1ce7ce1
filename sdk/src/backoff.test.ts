import { expect, test } from "vitest";
import { Backoff } from "./backoff.js";

test("waits double up to the longest, and begin anew after a reset", () => {
  const backoff = new Backoff({ random: () => 1 });
  const waits = Array.from({ length: 8 }, () => backoff.next());
  expect(waits).toEqual([100, 200, 400, 800, 1600, 3200, 5000, 5000]);
  backoff.reset();
  expect(backoff.next()).toBe(100);
});

test("each wait is somewhere between half and all of its span", () => {
  expect(new Backoff({ random: () => 0 }).next()).toBe(50);
  expect(new Backoff({ random: () => 0.5 }).next()).toBe(75);
});

test("a wait that may not be as long is shortened before it is jittered", () => {
  const backoff = new Backoff({ random: () => 0.5 });
  for (let attempt = 0; attempt < 10; attempt++) backoff.next();
  expect(backoff.next(200)).toBe(150);
});
