import { type Failure, FailureSchema, type Outcome, OutcomeSchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { LIMITS } from "../config.js";
import { acceptJson } from "./json.js";
import { acceptOutcome, type FailedStatus, failed, failure, ok, sameJson, sameOutcome, utf8Length } from "./outcome.js";
import { Refusal } from "./refusal.js";

const STATUSES: readonly FailedStatus[] = ["error", "timeout", "cancelled", "unknown"];

function reported(status: FailedStatus, more: Partial<Pick<Failure, "code" | "message" | "retryable" | "detailsJson">> = {}): Outcome {
  return failed(status, create(FailureSchema, { code: "out_of_stock", message: "nothing left", ...more }));
}

function refusal(make: () => unknown): Refusal {
  try {
    make();
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

describe("a failure of Brain's own", () => {
  it("is not retryable and has no details unless it says so", () => {
    expect(failure("invalid_input", "no")).toEqual(create(FailureSchema, { code: "invalid_input", message: "no", retryable: false }));
    const full = failure("host_unavailable", "no", { retryable: true, details: { violations: [] } });
    expect(full).toMatchObject({ retryable: true, detailsJson: '{"violations":[]}' });
  });
});

describe("a reported outcome", () => {
  it("that is ok is recorded as the value's own JSON text", () => {
    expect(acceptOutcome(ok(' { "b" : 1.0 , "a":"\\u0041" } '), "lookup")).toEqual(ok('{"b":1,"a":"A"}'));
    expect(acceptOutcome(ok("null"), "lookup")).toEqual(ok("null"));
  });

  it.each(["", "{", "NaN", "1e400", "9007199254740992", '"\\ud800"', '{"a":1,"a":2}', '{"n":Infinity}'])(
    "that is ok with %j becomes error invalid_output, naming the Tool",
    (text) => {
      const { status } = acceptOutcome(ok(text), "lookup");
      expect(status).toMatchObject({ case: "error", value: { code: "invalid_output", retryable: false } });
      expect(status.case === "error" && status.value.message).toMatch(/^Tool lookup returned a value that cannot be recorded: /);
    },
  );

  it("that is ok keeps NUL, astral characters and __proto__ as they are", () => {
    const text = '{"a\\u0000b":"😀","__proto__":{"constructor":1}}';
    expect(acceptOutcome(ok(text), "lookup")).toEqual(ok(text));
  });

  it("that is ok with a value over its budget becomes invalid_output, and is accepted at exactly its budget", () => {
    const text = JSON.stringify("é".repeat((LIMITS.valueBytes - 2) / 2));
    expect(acceptOutcome(ok(text), "lookup")).toEqual(ok(text));
    expect(acceptOutcome(ok(`${text} `), "lookup").status).toMatchObject({ case: "error", value: { code: "invalid_output" } });
  });

  it.each(STATUSES)("that is %s is recorded with its own code, message, retryable and details", (status) => {
    const outcome = reported(status, { retryable: true, detailsJson: ' {"left": 0} ' });
    expect(acceptOutcome(outcome, "lookup")).toEqual(reported(status, { retryable: true, detailsJson: '{"left":0}' }));
    expect(acceptOutcome(reported(status), "lookup")).toEqual(reported(status));
  });

  it("without a status is refused, saying what to set", () => {
    for (const outcome of [undefined, create(OutcomeSchema)]) {
      expect(refusal(() => acceptOutcome(outcome, "lookup"))).toMatchObject({
        reason: "invalid_argument",
        message: "outcome: has no status; set one of ok, error, timeout, cancelled, unknown",
      });
    }
  });

  it.each(STATUSES)("that is %s and out of bounds is refused, naming the field", (status) => {
    const wrong: readonly [string, Parameters<typeof reported>[1]][] = [
      ["code", { code: "" }],
      ["code", { code: "x".repeat(LIMITS.failureCodeLength + 1) }],
      ["message", { message: `${"é".repeat(LIMITS.failureMessageBytes / 2)}x` }],
      ["details_json", { detailsJson: "" }],
      ["details_json", { detailsJson: "{oops" }],
      ["details_json", { detailsJson: JSON.stringify("x".repeat(LIMITS.failureDetailsBytes)) }],
    ];
    for (const [field, more] of wrong) {
      const { reason, metadata, message } = refusal(() => acceptOutcome(reported(status, more), "lookup"));
      expect(reason).toBe("invalid_argument");
      expect(metadata).toEqual({ field: `outcome.${status}.${field}` });
      expect(message.length).toBeLessThan(400);
    }
  });

  it("at its bounds is accepted", () => {
    const outcome = reported("error", {
      code: "x".repeat(LIMITS.failureCodeLength),
      message: "é".repeat(LIMITS.failureMessageBytes / 2),
      detailsJson: JSON.stringify("x".repeat(LIMITS.failureDetailsBytes - 2)),
    });
    expect(acceptOutcome(outcome, "lookup")).toEqual(outcome);
  });
});

describe("two outcomes", () => {
  it("say the same when only the order of members or the writing of a number differs", () => {
    expect(sameOutcome(ok('{"a":1,"b":[2]}'), ok('{"b":[2.0],"a":1}'))).toBe(true);
    expect(sameOutcome(reported("error", { detailsJson: '{"a":1,"b":2}' }), reported("error", { detailsJson: '{"b":2,"a":1}' }))).toBe(
      true,
    );
  });

  it("say the same when both are one stop, whatever the words of whoever was stopped", () => {
    for (const status of ["timeout", "cancelled"] as const) {
      expect(sameOutcome(reported(status), reported(status, { message: "other", retryable: true, detailsJson: "{}" }))).toBe(true);
      expect(sameOutcome(reported(status), reported(status, { code: "other" }))).toBe(false);
    }
    expect(sameOutcome(reported("timeout"), reported("cancelled"))).toBe(false);
  });

  it("differ when anything else does", () => {
    const outcomes = [
      ok("null"),
      ok("{}"),
      ok("[]"),
      ...STATUSES.flatMap((status) => [reported(status), reported(status, { code: "other" })]),
      ...(["error", "unknown"] as const).flatMap((status) => [
        reported(status, { message: "other" }),
        reported(status, { retryable: true }),
        reported(status, { detailsJson: "{}" }),
      ]),
      create(OutcomeSchema),
    ];
    for (const [at, left] of outcomes.entries()) {
      for (const [where, right] of outcomes.entries()) expect(sameOutcome(left, right)).toBe(at === where);
    }
  });
});

describe("two JSON texts", () => {
  it("are the same when they are the same value, however they are written", () => {
    const recordable = fc.jsonValue().filter((value) => acceptJson(JSON.stringify(value), LIMITS.valueBytes).ok);
    fc.assert(
      fc.property(recordable, (value) => {
        expect(sameJson(JSON.stringify(value), JSON.stringify(value, null, 2))).toBe(true);
      }),
    );
    expect(sameJson('{"__proto__":1}', "{}")).toBe(false);
    expect(sameJson("[1,2]", "[2,1]")).toBe(false);
    expect(sameJson("1", '"1"')).toBe(false);
  });

  it("are the same in the form they are recorded in, with the order of members alone different", () => {
    const recorded = (text: string): string => {
      const accepted = acceptJson(text, LIMITS.valueBytes);
      if (!accepted.ok) throw new Error(accepted.problem);
      return accepted.text;
    };
    for (const number of ["1e20", "1e300", "5e-324", "9007199254740993.0", "0.1"]) {
      expect(sameJson(recorded(`{"a":${number},"b":1}`), recorded(`{"b":1,"a":${number}}`)), number).toBe(true);
    }
    expect(sameJson(recorded('{"a":1e20,"b":1}'), recorded('{"b":1,"a":2e20}'))).toBe(false);
  });

  it("that are refused for what a parse would lose are the same only as texts", () => {
    expect(sameJson('{"a":1,"a":2}', '{"a":2}')).toBe(false);
    expect(sameJson('{"n":9007199254740993}', '{"n":9007199254740992}')).toBe(false);
    const deep = "[".repeat(100_000) + "]".repeat(100_000);
    expect(sameJson(deep, `${deep} `)).toBe(false);
  });

  it("that are no JSON are compared as they are", () => {
    expect(sameJson("{oops", "{oops")).toBe(true);
    expect(sameJson("{oops", "{oops ")).toBe(false);
    expect(sameJson("{oops", "{}")).toBe(false);
  });
});

describe("the length in UTF-8", () => {
  it("is what an encoder makes of the text", () => {
    const encoder = new TextEncoder();
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.constantFrom("", "\ud800", "\udc00", "\ud83d\ud83d\ude00"), (text, odd) => {
        const all = text + odd + text;
        expect(utf8Length(all)).toBe(encoder.encode(all).length);
      }),
    );
  });
});
