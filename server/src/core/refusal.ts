import type { RefusalReason } from "./codes.js";

/**
 * A request that is refused: thrown only to leave a request, never stored, never an Outcome.
 * Branch on `reason`, not on the class.
 */
export class Refusal extends Error {
  readonly reason: RefusalReason;
  readonly metadata: Readonly<Record<string, string>>;

  constructor(reason: RefusalReason, message: string, metadata: Readonly<Record<string, string>> = {}) {
    super(message);
    this.name = "Refusal";
    this.reason = reason;
    this.metadata = metadata;
  }
}

export function invalidArgument(field: string, message: string): Refusal {
  return new Refusal("invalid_argument", `${field}: ${message}`, { field });
}
