import type { Clock } from "../../server/src/runtime/clock.js";

/** Time that moves only when a test moves it. */
export interface VirtualClock extends Clock {
  /**
   * Moves both clocks on by `ms`, timer by timer in the order they are due, and lets everything that follows from each
   * one happen before the next. Resolves when nothing is left to happen.
   */
  advance(ms: number): Promise<void>;
  /** Both clocks jump by `ms`, and only then do timers fire, late: what a process sees that was stopped meanwhile. */
  stall(ms: number): Promise<void>;
  /** Moves the wall clock alone, either way. */
  stepWall(ms: number): void;
  /** Lets happen what can happen without time passing. */
  settle(): Promise<void>;
  readonly pendingTimers: number;
}

interface Timer {
  readonly dueAt: number;
  readonly order: number;
  readonly wake: () => void;
}

/** Turns of the event loop after which a chain of promises and commits is over, where nobody knows better. */
const SETTLING_TURNS = 20;

/**
 * A clock that stands at `startWallMs` until it is moved. `settle` says how to wait until nothing more happens; without
 * it some turns of the event loop are given.
 */
export function createVirtualClock(options: { startWallMs: number; settle?: () => Promise<void> }): VirtualClock {
  const settle = options.settle ?? settleByTurns;
  const timers = new Set<Timer>();
  let wall = options.startWallMs;
  // A process does not start at zero either.
  let monotonic = 1000;
  let order = 0;

  const moveTo = (time: number): void => {
    wall += time - monotonic;
    monotonic = time;
  };
  const nextDue = (until: number): Timer | undefined => {
    let next: Timer | undefined;
    for (const timer of timers) {
      if (timer.dueAt > until) continue;
      if (next === undefined || timer.dueAt < next.dueAt || (timer.dueAt === next.dueAt && timer.order < next.order)) next = timer;
    }
    return next;
  };
  const runUntil = async (until: number): Promise<void> => {
    for (let timer = nextDue(until); timer !== undefined; timer = nextDue(until)) {
      timers.delete(timer);
      if (timer.dueAt > monotonic) moveTo(timer.dueAt);
      timer.wake();
      await settle();
    }
  };

  return {
    now: () => Math.floor(wall),
    monotonic: () => monotonic,
    after(delayMs, wake) {
      const timer = { dueAt: monotonic + Math.max(0, delayMs), order: order++, wake };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    async advance(ms) {
      await settle();
      const until = monotonic + ms;
      await runUntil(until);
      moveTo(until);
      await settle();
    },
    async stall(ms) {
      await settle();
      moveTo(monotonic + ms);
      await runUntil(monotonic);
      await settle();
    },
    stepWall(ms) {
      wall += ms;
    },
    settle,
    get pendingTimers() {
      return timers.size;
    },
  };
}

async function settleByTurns(): Promise<void> {
  for (let turn = 0; turn < SETTLING_TURNS; turn++) await turnOfTheLoop();
}

/** Resolves in the next turn of the event loop, after every promise that can settle before it. */
export function turnOfTheLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
