import { type Failure, FailureSchema, type Outcome, OutcomeSchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { LIMITS } from "../config.js";
import type { FailureCode } from "./codes.js";
import { acceptJson, canonicalJson } from "./json.js";
import { quote } from "./names.js";
import { invalidArgument } from "./refusal.js";

/** A failure of Brain's own. `retryable` says that the Tool is known not to have run, so that calling again under a new call_id is safe. */
export function failure(code: FailureCode, message: string, more: { retryable?: boolean; details?: unknown } = {}): Failure {
  const failed = create(FailureSchema, { code, message, retryable: more.retryable ?? false });
  if (more.details !== undefined) failed.detailsJson = JSON.stringify(more.details);
  return failed;
}

export type FailedStatus = "error" | "timeout" | "cancelled" | "unknown";

export function failed(status: FailedStatus, value: Failure): Outcome {
  return create(OutcomeSchema, { status: { case: status, value } });
}

export function ok(valueJson: string): Outcome {
  return create(OutcomeSchema, { status: { case: "ok", value: { valueJson } } });
}

/**
 * Whether two outcomes say the same. JSON is compared as a value, so that the order of members does not count; a
 * timeout or a cancellation that is only acknowledged by what was stopped says nothing new, whatever its words.
 */
export function sameOutcome(left: Outcome, right: Outcome): boolean {
  const a = left.status;
  const b = right.status;
  if (a.case === undefined || b.case === undefined) return a.case === b.case;
  if (a.case === "ok" || b.case === "ok") {
    return a.case === "ok" && b.case === "ok" && sameJson(a.value.valueJson, b.value.valueJson);
  }
  if (a.case !== b.case) return false;
  if ((a.case === "timeout" || a.case === "cancelled") && a.value.code === b.value.code) return true;
  return (
    a.value.code === b.value.code &&
    a.value.message === b.value.message &&
    a.value.retryable === b.value.retryable &&
    sameJson(a.value.detailsJson ?? "null", b.value.detailsJson ?? "null")
  );
}

/** Whether two texts are the same JSON value. Texts that are no JSON are compared as they are. */
export function sameJson(left: string, right: string): boolean {
  if (left === right) return true;
  const canonical = canonicalText(left);
  return canonical !== undefined && canonical === canonicalText(right);
}

function canonicalText(text: string): string | undefined {
  const accepted = acceptJson(text, Number.POSITIVE_INFINITY);
  if (accepted.ok) return canonicalJson(accepted.value);
  // What acceptJson gave it need not accept again: it writes 1e20 out as an integer. Of every other text that is
  // refused, a parse could lose something, and then the text is not what stringify makes of it.
  try {
    const value: unknown = JSON.parse(text);
    return JSON.stringify(value) === text ? canonicalJson(value) : undefined;
  } catch {
    // No JSON, or nested too deep.
    return undefined;
  }
}

/**
 * An outcome as somebody reported it, brought to the form that is judged, journaled and answered. A value that
 * is no JSON or over its budget becomes `invalid_output`; a failure that breaks its own rules is refused, since
 * the reporter can mend it.
 * @throws Refusal `invalid_argument` naming the field.
 */
export function acceptOutcome(reported: Outcome | undefined, tool: string): Outcome {
  const status = reported?.status;
  if (status?.case === undefined) throw invalidArgument("outcome", "has no status; set one of ok, error, timeout, cancelled, unknown");
  if (status.case === "ok") {
    const accepted = acceptJson(status.value.valueJson, LIMITS.valueBytes);
    if (accepted.ok) return ok(accepted.text);
    return failed("error", failure("invalid_output", `Tool ${tool} returned a value that cannot be recorded: ${accepted.problem}`));
  }
  const { code, message, retryable, detailsJson } = status.value;
  if (code.length === 0 || code.length > LIMITS.failureCodeLength) {
    throw invalidArgument(`outcome.${status.case}.code`, `${quote(code)} must be 1 to ${LIMITS.failureCodeLength} characters`);
  }
  const messageBytes = utf8Length(message);
  if (messageBytes > LIMITS.failureMessageBytes) {
    throw invalidArgument(`outcome.${status.case}.message`, `is ${messageBytes} bytes; at most ${LIMITS.failureMessageBytes} are allowed`);
  }
  const accepted = create(FailureSchema, { code, message, retryable });
  if (detailsJson !== undefined) {
    const details = acceptJson(detailsJson, LIMITS.failureDetailsBytes);
    if (!details.ok) throw invalidArgument(`outcome.${status.case}.details_json`, details.problem);
    accepted.detailsJson = details.text;
  }
  return failed(status.case, accepted);
}

/** Bytes of the text in UTF-8; a lone surrogate counts as the three bytes of its replacement. */
export function utf8Length(text: string): number {
  let bytes = text.length;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit < 0x80) continue;
    if (unit < 0x800) bytes += 1;
    else if (unit >= 0xd800 && unit <= 0xdbff && (text.charCodeAt(index + 1) & 0xfc00) === 0xdc00) {
      bytes += 2;
      index++;
    } else bytes += 2;
  }
  return bytes;
}
