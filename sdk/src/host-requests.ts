/**
 * What a host tells Brain about its calls, repeated until it is answered.
 *
 * 1. A request is repeated until it is answered, or refused in a way that repetition cannot change; at once when a
 *    stream is up again, and after growing, jittered waits otherwise.
 * 2. While the token is refused and no stream is up, nothing is asked here: attaching finds out when it is accepted.
 */
import { Backoff } from "./backoff.js";
import type { Happening } from "./clock.js";
import { BrainError, brainErrorFrom, isForGood, isTokenRefusal } from "./errors.js";
import type { RouteChoice } from "./host-routes/choice.js";
import type { HostRoute } from "./host-routes/route.js";
import type { TokenGate } from "./token-gate.js";

export interface HostRequestsOptions {
  readonly routes: RouteChoice;
  readonly gate: TokenGate;
  /** A stream is up, or the connection closes. */
  readonly up: Happening;
  readonly isUp: () => boolean;
  readonly closing: AbortSignal;
}

export class HostRequests {
  readonly #options: HostRequestsOptions;

  constructor(options: HostRequestsOptions) {
    this.#options = options;
  }

  /** Rejects with a BrainError: `closed`, or what refused it for good. */
  async untilAnswered<T>(send: (route: HostRoute) => Promise<T>): Promise<T> {
    const { routes, gate, up, closing } = this.#options;
    const backoff = new Backoff();
    for (;;) {
      await this.#turn();
      if (closing.aborted) throw new BrainError("closed", "This Brain object was closed before Brain answered");
      const route = routes.current;
      try {
        const answer = await send(route);
        gate.accepted();
        return answer;
      } catch (thrown) {
        const error = brainErrorFrom(thrown, "");
        if (isForGood(error) && !this.#isRouteChange(route, error)) throw error;
        if (isTokenRefusal(error)) gate.refused();
        else await up.next(backoff.next());
      }
    }
  }

  async #turn(): Promise<void> {
    const { gate, up, isUp, closing } = this.#options;
    while (gate.isRefused && !closing.aborted) {
      if (!isUp()) {
        await up.next(Number.POSITIVE_INFINITY);
        continue;
      }
      const waitMs = gate.pass();
      if (waitMs === 0) return;
      await up.next(waitMs);
    }
  }

  /** A route that was given up closes its requests; they belong to the next one. */
  #isRouteChange(route: HostRoute, error: BrainError): boolean {
    return error.reason === "closed" && route !== this.#options.routes.current;
  }
}
