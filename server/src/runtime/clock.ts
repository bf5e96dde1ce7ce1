/**
 * Time, as everything above the journal sees it.
 *
 * 1. `now` is the wall clock and is used for what people read and what crosses a restart: deadlines in records.
 * 2. `monotonic` never steps; every wait of a living process is measured on it, so stepping the wall clock changes no deadline.
 * 3. `after` is right for any span; a bare setTimeout fires at once beyond 2^31-1 ms.
 */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Milliseconds on a clock that only moves forward. */
  monotonic(): number;
  /** Calls `wake` once, `delayMs` from now (at once for zero or less, never synchronously). Returns the disarm. */
  after(delayMs: number, wake: () => void): () => void;
}

const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delayMs, wake) {
    const due = performance.now() + delayMs;
    let timer: NodeJS.Timeout;
    const arm = (left: number): void => {
      timer = setTimeout(
        () => {
          const remaining = due - performance.now();
          // Timers may fire a fraction early; a deadline must not.
          if (remaining > 0) arm(remaining);
          else wake();
        },
        Math.min(Math.max(Math.ceil(left), 0), LONGEST_TIMEOUT_MS),
      );
    };
    arm(delayMs);
    return () => clearTimeout(timer);
  },
};
