/**
 * Time for a living process.
 *
 * 1. Every wait is measured on the monotonic clock: stepping the wall clock moves no deadline.
 * 2. `after` is right for any span; a bare setTimeout fires at once beyond 2^31-1 ms.
 * 3. A wait never ends early.
 */
export interface Clock {
  /** Milliseconds on a clock that only moves forward. */
  monotonic(): number;
  /** Calls `wake` once, `delayMs` from now, never synchronously. Returns the disarm. */
  after(delayMs: number, wake: () => void): () => void;
}

const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  monotonic: () => performance.now(),
  after(delayMs, wake) {
    const due = performance.now() + delayMs;
    let timer: NodeJS.Timeout;
    const arm = (left: number): void => {
      timer = setTimeout(
        () => {
          const remaining = due - performance.now();
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

/** Waits `delayMs`, or less if the signal is aborted first. Never rejects. */
export function wait(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = (): void => {
      disarm();
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const disarm = clock.after(delayMs, end);
    signal?.addEventListener("abort", end, { once: true });
  });
}

/** Something that several may wait for and that happens again and again. Nobody who waits is forgotten, or woken twice. */
export class Happening {
  readonly #clock: Clock;
  readonly #wakers = new Set<() => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  happened(): void {
    const wakers = [...this.#wakers];
    this.#wakers.clear();
    for (const wake of wakers) wake();
  }

  /** Waits for the next time it happens, `delayMs` at the longest. */
  next(delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      const woken = (): void => {
        disarm?.();
        this.#wakers.delete(woken);
        resolve();
      };
      const disarm = delayMs === Number.POSITIVE_INFINITY ? undefined : this.#clock.after(delayMs, woken);
      this.#wakers.add(woken);
    });
  }
}
