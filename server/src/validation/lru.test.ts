import { describe, expect, it } from "vitest";
import { Lru } from "./lru.js";

describe("Lru", () => {
  it("forgets what was used longest ago, by number and by weight, and says what", () => {
    const byNumber = new Lru<number>(2);
    byNumber.set("a", 1);
    byNumber.set("b", 2);
    expect(byNumber.get("a")).toBe(1);
    expect(byNumber.set("c", 3)).toEqual(["b"]);
    expect([byNumber.get("a"), byNumber.get("b"), byNumber.get("c"), byNumber.size]).toEqual([1, undefined, 3, 2]);
    const byWeight = new Lru<number>(10, 10);
    byWeight.set("a", 1, 4);
    byWeight.set("b", 2, 4);
    expect(byWeight.set("c", 3, 4)).toEqual(["a"]);
    expect(byWeight.set("b", 2, 6)).toEqual([]);
    expect(byWeight.set("heavy", 4, 11)).toEqual(["c", "b", "heavy"]);
    expect(byWeight.size).toBe(0);
  });
});
