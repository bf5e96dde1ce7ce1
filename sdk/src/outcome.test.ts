import { describe, expect, test } from "vitest";
import { isOutcome, OutcomeError, outcome, outcomeFromWire, unwrap, wireFailure, wireOk } from "./outcome.js";

describe("an Outcome", () => {
  test("is what outcome makes, and no look-alike or copy", () => {
    expect(isOutcome(outcome.ok(1))).toBe(true);
    expect(isOutcome({ status: "ok", value: 1 })).toBe(false);
    expect(isOutcome({ ...outcome.ok(1) })).toBe(false);
    expect(isOutcome(null)).toBe(false);
  });

  test("is recognised by its brand alone, so that another copy of this package understands it", () => {
    const foreign = { status: "ok", value: 1, [Symbol.for("aexhq.brain.outcome")]: true };
    expect(isOutcome(foreign)).toBe(true);
  });

  test("equals plain data of the same content", () => {
    expect(outcome.ok({ a: 1 })).toEqual({ status: "ok", value: { a: 1 } });
    expect(outcome.error({ code: "no", message: "no" })).toEqual({ status: "error", code: "no", message: "no", retryable: false });
  });

  test("of a failure has a code programs can branch on, and a message", () => {
    expect(() => outcome.error({ code: "", message: "x" })).toThrow("code");
    expect(() => outcome.timeout({ code: "x".repeat(129), message: "x" })).toThrow("128");
    expect(outcome.unknown({ code: "lost", message: "" })).toMatchObject({ status: "unknown", message: "lost" });
    expect(outcome.cancelled({ code: "c", message: "m", retryable: true, details: [1] })).toMatchObject({ retryable: true, details: [1] });
  });
});

test("unwrap gives the value, and throws the failure with its code", () => {
  expect(unwrap(outcome.ok(7))).toBe(7);
  const failure = outcome.error({ code: "not_found", message: "no such item", retryable: true, details: { id: 1 } });
  expect(() => unwrap(failure)).toThrow(OutcomeError);
  expect(() => unwrap(failure)).toThrow(
    expect.objectContaining({ code: "not_found", status: "error", retryable: true, details: { id: 1 } }),
  );
});

test("what Brain recorded comes back branded, so that a function may return it as its own", () => {
  expect(outcomeFromWire(wireOk('{"a":[1]}'))).toEqual({ status: "ok", value: { a: [1] } });
  const failed = outcomeFromWire(wireFailure("timeout", { code: "deadline_passed", message: "late", detailsJson: "null" }));
  expect(failed).toEqual({ status: "timeout", code: "deadline_passed", message: "late", retryable: false, details: null });
  expect(isOutcome(failed)).toBe(true);
  expect(outcomeFromWire(undefined)).toMatchObject({ status: "unknown", code: "unknown_status" });
});
