import type { Duration } from "@bufbuild/protobuf/wkt";
import { LIMITS } from "../config.js";
import { invalidArgument } from "../core/refusal.js";

/**
 * Milliseconds of a timeout as a request carries it; the fallback when it carries none.
 * @throws Refusal `invalid_argument` for zero, less, more than ten years, and what is no duration.
 */
export function checkTimeout(field: string, timeout: Duration | undefined, fallbackMs: number): number {
  if (timeout === undefined) return fallbackMs;
  const milliseconds = Number(timeout.seconds) * 1000 + timeout.nanos / 1e6;
  if (!(milliseconds > 0) || Math.abs(timeout.nanos) > 999_999_999) {
    throw invalidArgument(field, `${milliseconds} ms is no timeout; it must be more than zero`);
  }
  if (milliseconds > LIMITS.timeoutMs)
    throw invalidArgument(field, `${milliseconds} ms is too long; at most ${LIMITS.timeoutMs} ms (ten years) are allowed`);
  // Whole milliseconds, as records and commands carry them; never shorter than asked for.
  return Math.ceil(milliseconds);
}
