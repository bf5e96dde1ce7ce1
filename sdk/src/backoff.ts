/** Growing, jittered waits between attempts, so that many clients of one server do not come back in step. */
export class Backoff {
  readonly #firstMs: number;
  readonly #longestMs: number;
  readonly #random: () => number;
  #attempts = 0;

  constructor(options: { firstMs?: number; longestMs?: number; random?: () => number } = {}) {
    this.#firstMs = options.firstMs ?? 100;
    this.#longestMs = options.longestMs ?? 5_000;
    this.#random = options.random ?? Math.random;
  }

  /** Milliseconds to wait before the next attempt: between half and all of a span that doubles up to the longest, or to `atMostMs`. */
  next(atMostMs = this.#longestMs): number {
    const span = Math.min(this.#firstMs * 2 ** this.#attempts, this.#longestMs, atMostMs);
    this.#attempts++;
    return span / 2 + (span / 2) * this.#random();
  }

  reset(): void {
    this.#attempts = 0;
  }
}
