import type { Clock } from "./clock.js";

const TOKEN_REFUSED_MS = 3_000;

/** After a refused token, one request in 3 seconds at most, of whatever kind: more of them do not make it right. */
export class TokenGate {
  readonly #clock: Clock;
  #opensMs: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get isRefused(): boolean {
    return this.#opensMs !== undefined;
  }

  refused(): void {
    this.#opensMs = this.#clock.monotonic() + TOKEN_REFUSED_MS;
  }

  accepted(): void {
    this.#opensMs = undefined;
  }

  /** Milliseconds to wait before asking to pass again; 0 lets one request pass, and nobody else for a while. */
  pass(): number {
    if (this.#opensMs === undefined) return 0;
    const leftMs = this.#opensMs - this.#clock.monotonic();
    if (leftMs > 0) return leftMs;
    this.refused();
    return 0;
  }
}
