import { Script } from "node:vm";

/** The work was interrupted at its limit. */
export const INTERRUPTED = Symbol("interrupted");

const SLOT = Symbol.for("brain.validation.work");
const holder = globalThis as unknown as Record<symbol, (() => void) | undefined>;
const script = new Script(`globalThis[Symbol.for("brain.validation.work")]()`);

/**
 * Runs synchronous work, and interrupts it after `limitMs`, in the midst of a loop, a recursion or a regular
 * expression. It blocks its thread meanwhile and costs some 0.1 ms itself, so it is for threads made for that.
 * Throws what the work throws.
 */
export function interruptibly<T>(limitMs: number, work: () => T): T | typeof INTERRUPTED {
  if (limitMs < 1) return INTERRUPTED;
  let outcome: T | typeof INTERRUPTED = INTERRUPTED;
  holder[SLOT] = () => {
    outcome = work();
  };
  try {
    script.runInThisContext({ timeout: Math.ceil(limitMs) });
    return outcome;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ERR_SCRIPT_EXECUTION_TIMEOUT") return INTERRUPTED;
    throw error;
  } finally {
    holder[SLOT] = undefined;
  }
}
