import { describe, expect, it } from "vitest";
import { INTERRUPTED, interruptibly } from "./interrupt.js";

describe("interruptibly", () => {
  it("gives what the work gives and throws what it throws", () => {
    expect(interruptibly(1000, () => 42)).toBe(42);
    expect(() =>
      interruptibly(1000, () => {
        throw new RangeError("no");
      }),
    ).toThrow(RangeError);
  });

  it.each<[string, () => unknown]>([
    [
      "loop",
      () => {
        for (;;);
      },
    ],
    ["regular expression", () => /^(a+)+$/.test(`${"a".repeat(60)}b`)],
  ])("interrupts an endless %s and goes on working", (_what, work) => {
    expect(interruptibly(20, work)).toBe(INTERRUPTED);
    expect(interruptibly(1000, () => 1)).toBe(1);
  });

  it("does not begin when nothing is left", () => {
    expect(
      interruptibly(0, () => {
        throw new Error("began");
      }),
    ).toBe(INTERRUPTED);
  });
});
