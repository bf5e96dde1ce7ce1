/** A bug, not a refusal and not an outcome: the session that meets one stops. */
export class AssertionFailed extends Error {}

function check(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionFailed(`assertion failed: ${message}`);
}

function fail(message: string): never {
  throw new AssertionFailed(`assertion failed: ${message}`);
}

/** Throws when the condition does not hold. */
export const assert: typeof check & { fail: typeof fail } = Object.assign(check, { fail });
