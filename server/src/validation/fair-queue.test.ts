import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FairQueue } from "./fair-queue.js";

describe("FairQueue", () => {
  it("takes turns between sources and keeps the order within one", () => {
    const queue = new FairQueue<string>(10, 100);
    for (const item of ["a1", "a2", "a3", "b1", "c1", "b2"]) expect(queue.put(item.charAt(0), item, 1)).toEqual([]);
    expect(queue.drain).toBeDefined();
    const order: (string | undefined)[] = [];
    while (queue.size > 0) order.push(queue.take());
    expect(order).toEqual(["a1", "b1", "c1", "a2", "b2", "a3"]);
    expect(queue.take()).toBeUndefined();
  });

  it("drops the newest of the source with the most when it is full, by number and by weight", () => {
    const byNumber = new FairQueue<string>(3, 100);
    for (const item of ["a1", "a2", "a3"]) byNumber.put("a", item, 1);
    expect(byNumber.put("b", "b1", 1)).toEqual(["a3"]);
    const byWeight = new FairQueue<string>(100, 10);
    byWeight.put("a", "a1", 6);
    expect(byWeight.put("b", "b1", 3)).toEqual([]);
    expect(byWeight.put("b", "b2", 2)).toEqual(["a1"]);
    expect(byWeight.put("c", "c1", 11)).toEqual(["c1"]);
  });

  it("lets one source's items be taken out", () => {
    const queue = new FairQueue<string>(10, 100);
    for (const item of ["a1", "b1", "a2"]) queue.put(item.charAt(0), item, 1);
    expect(queue.takeAll("a")).toEqual(["a1", "a2"]);
    expect(queue.takeAll("a")).toEqual([]);
    expect(queue.size).toBe(1);
    expect(queue.drain()).toEqual(["b1"]);
  });

  it("loses and invents nothing, whatever is put and taken", () => {
    const action = fc.oneof(fc.record({ source: fc.constantFrom("a", "b", "c"), weight: fc.nat(5) }), fc.constantFrom("take", "takeAll"));
    fc.assert(
      fc.property(fc.array(action, { maxLength: 60 }), (actions) => {
        const queue = new FairQueue<number>(5, 12);
        const inside = new Set<number>();
        for (const [item, step] of actions.entries()) {
          if (step === "take") {
            const taken = queue.take();
            expect(taken === undefined).toBe(inside.size === 0);
            if (taken !== undefined) expect(inside.delete(taken)).toBe(true);
          } else if (step === "takeAll") {
            for (const taken of queue.takeAll("a")) expect(inside.delete(taken)).toBe(true);
          } else if (typeof step === "object") {
            inside.add(item);
            for (const dropped of queue.put(step.source, item, step.weight)) expect(inside.delete(dropped)).toBe(true);
          }
          expect(queue.size).toBe(inside.size);
          expect(queue.size).toBeLessThanOrEqual(5);
        }
      }),
    );
  });
});
