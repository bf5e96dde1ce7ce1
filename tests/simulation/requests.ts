import { isRefusal } from "../../server/src/rpc/connect-error.js";
import { type Ground, latency } from "./ground.js";
import type { Window } from "./reached.js";
import { type BrainLife, describe } from "./server.js";

/** What came of a request, in the eyes of whoever sent it. */
export type Heard<T> =
  | { readonly type: "answered"; readonly answer: T }
  | { readonly type: "refused"; readonly reason: string }
  /** Nobody knows whether it arrived. */
  | { readonly type: "lost" };

/** How one request fares on its way. */
export interface Way {
  /** Nothing arrives before this moment. */
  readonly frozenUntil: number;
  /** May the network deliver it a second time? */
  readonly mayDouble: boolean;
  /** It is one of the steps at which something may go wrong. */
  readonly mayFail?: boolean;
}

/**
 * Sends a request of its own to the server and tells what came of it, once, unless the sender does not live to hear it.
 * It may be lost, doubled, answered in vain, and overtaken by every other.
 */
export function request<T>(
  ground: Ground,
  way: Way,
  send: (life: BrainLife) => T | Promise<T>,
  heard: (what: Heard<T>) => void,
  answeredAtServer: (life: BrainLife, answer: T) => void = () => undefined,
): void {
  const { schedule, random, weather, server, calm } = ground;
  let over = false;
  const tell = (what: Heard<T>, delayMs: number): void => {
    schedule.after(delayMs, () => {
      if (over) return;
      over = true;
      heard(what);
    });
  };
  const patience = weather.heartbeatMs * (1 + random.next());
  const isLost = !calm && random.chance(weather.lostRequest);
  const isAnswerLost = !calm && random.chance(weather.lostAnswer);
  if (isLost || isAnswerLost) tell({ type: "lost" }, patience);
  const deliver = (): void => {
    const arrivesIn = Math.max(latency(ground), way.frozenUntil - schedule.now);
    schedule.after(arrivesIn, () =>
      server.reach(
        (life) => {
          const fault = way.mayFail === true ? ground.faults.at("request") : undefined;
          if (fault === "lost before") return tell({ type: "lost" }, latency(ground));
          if (fault === "crash before") {
            tell({ type: "lost" }, latency(ground));
            return server.crash(100);
          }
          const forgetDeath = life.onDeath(() => tell({ type: "lost" }, latency(ground)));
          const answered = (what: Heard<T>): void => {
            if (!life.alive) return;
            forgetDeath();
            if (fault === "lost after") {
              tell({ type: "lost" }, latency(ground));
              return;
            }
            if (fault === "crash after") {
              tell({ type: "lost" }, latency(ground));
              return void schedule.after(0, () => server.crash(100));
            }
            if (!isAnswerLost) tell(what, latency(ground));
          };
          // A refusal may be thrown in this very step.
          new Promise<T>((resolve) => resolve(send(life))).then(
            (answer) => {
              if (life.alive) answeredAtServer(life, answer);
              answered({ type: "answered", answer });
            },
            (error: unknown) => {
              if (!life.alive) return;
              answered({ type: "refused", reason: refusalReason(ground, error) });
            },
          );
        },
        () => tell({ type: "lost" }, latency(ground)),
      ),
    );
  };
  if (!isLost) deliver();
  if (way.mayDouble && !calm && random.chance(weather.doubledRequest)) deliver();
}

/** The reason of a refusal; anything else that is thrown is a bug. */
export function refusalReason(ground: Ground, error: unknown): string {
  if (isRefusal(error)) {
    if (error.reason === "internal") ground.oracle.fail(`a request is refused as internal: ${error.message}`);
    ground.reached.reach(`refusal ${error.reason}` as Window);
    return error.reason;
  }
  ground.oracle.fail(`a request meets a bug: ${describe(error)}`);
  return "internal";
}
