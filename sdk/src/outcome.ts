import { OutcomeSchema, type Outcome as WireOutcome } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { invalidArgument } from "./errors.js";

const BRAND = Symbol.for("aexhq.brain.outcome");

/** What became of a call, when it did not succeed. `code` is what programs branch on, `message` is for people and models. */
export interface Failed {
  readonly status: "error" | "timeout" | "cancelled" | "unknown";
  readonly code: string;
  readonly message: string;
  /** Whether asking again, as a new call, might help. Nobody repeats a call by itself. */
  readonly retryable: boolean;
  /** Any JSON value. */
  readonly details?: unknown;
}

/** The one true ending of a call. */
export type Outcome<T = unknown> = { readonly status: "ok"; readonly value: T } | Failed;

/** What a failed Outcome is made of. */
export interface FailureInput {
  /** The reason for programs: a word of 1 to 128 characters, in lower_snake by custom. */
  code: string;
  /** The reason for people; cut to 8 KiB on its way. */
  message: string;
  /** False unless said otherwise. */
  retryable?: boolean;
  /** Any JSON value of at most 64 KiB. */
  details?: unknown;
}

function branded<T extends Outcome>(value: T): T {
  // Not enumerable: two equal Outcomes compare equal, and a spread or a JSON copy is plain data again.
  Object.defineProperty(value, BRAND, { value: true });
  return Object.freeze(value);
}

/** Characters of a failure's code. */
const CODE_MAX_LENGTH = 128;

function failed(status: Failed["status"], input: FailureInput): Outcome<never> {
  if (typeof input.code !== "string" || input.code === "" || input.code.length > CODE_MAX_LENGTH) {
    throw invalidArgument(`outcome.${status}: the code is not a word of 1 to ${CODE_MAX_LENGTH} characters; programs branch on it`);
  }
  const details = input.details === undefined ? {} : { details: input.details };
  const message = input.message === "" ? input.code : String(input.message);
  return branded({ status, code: input.code, message, retryable: input.retryable ?? false, ...details });
}

/**
 * Makes Outcomes for a Tool's function to return. Only what these make counts as an Outcome: a look-alike object is
 * ordinary data and becomes the value of an `ok`.
 *
 * @example
 * run: ({ id }) => items.get(id) ?? outcome.error({ code: "not_found", message: `there is no item ${id}`, details: { id } }),
 */
export const outcome = {
  /** The call succeeded with a value. */
  ok: <T>(value: T): Outcome<T> => branded({ status: "ok", value }),
  /** The call is known to have failed. */
  error: (failure: FailureInput): Outcome<never> => failed("error", failure),
  /** The call ran out of time. */
  timeout: (failure: FailureInput): Outcome<never> => failed("timeout", failure),
  /** The call was stopped on request. */
  cancelled: (failure: FailureInput): Outcome<never> => failed("cancelled", failure),
  /** What became of the call cannot be established. */
  unknown: (failure: FailureInput): Outcome<never> => failed("unknown", failure),
} as const;

export function isOutcome(value: unknown): value is Outcome {
  return typeof value === "object" && value !== null && (value as { [BRAND]?: unknown })[BRAND] === true;
}

/** Thrown by `unwrap`: a failed Outcome as an Error. */
export class OutcomeError extends Error {
  readonly status: Failed["status"];
  readonly code: string;
  readonly retryable: boolean;
  readonly details: unknown;

  constructor(failure: Failed) {
    super(`${failure.status} ${failure.code}: ${failure.message}`);
    this.name = "OutcomeError";
    this.status = failure.status;
    this.code = failure.code;
    this.retryable = failure.retryable;
    this.details = failure.details;
  }
}

/**
 * The value of an `ok`.
 *
 * @throws OutcomeError, which carries status, code, retryable and details, for the other four.
 * @example
 * const { value } = unwrap(await session.callTool<{ value: string }>({ name: "lookup", environment: "app", input }));
 */
export function unwrap<T>(ending: Outcome<T>): T {
  if (ending.status === "ok") return ending.value;
  throw new OutcomeError(ending);
}

/** A wire failure with texts that are ready to be sent. */
export function wireFailure(
  status: Failed["status"],
  failure: { code: string; message: string; retryable?: boolean; detailsJson?: string },
): WireOutcome {
  const { code, message, retryable = false, detailsJson } = failure;
  const value = { code, message, retryable, ...(detailsJson === undefined ? {} : { detailsJson }) };
  return create(OutcomeSchema, { status: { case: status, value } });
}

export function wireOk(valueJson: string): WireOutcome {
  return create(OutcomeSchema, { status: { case: "ok", value: { valueJson } } });
}

/** An Outcome as Brain recorded it, branded, so that a function may return it as its own. */
export function outcomeFromWire<T = unknown>(wire: WireOutcome | undefined): Outcome<T> {
  const status = wire?.status;
  if (status?.case === "ok") return branded({ status: "ok", value: JSON.parse(status.value.valueJson) as T });
  if (status?.case === undefined) {
    return outcome.unknown({
      code: "unknown_status",
      message: "Brain answered with an outcome this version of the SDK does not know; update @aexhq/brain",
    });
  }
  const { code, message, retryable, detailsJson } = status.value;
  const details = detailsJson === undefined ? {} : { details: JSON.parse(detailsJson) as unknown };
  return branded({ status: status.case, code, message, retryable, ...details });
}
