import type { Random } from "./random.js";

/** How rough one world is: the means between troubles, and how likely the others are. A world has some of them, rarely all. */
export interface Weather {
  readonly heartbeatMs: number;
  readonly graceMs: number;
  readonly hostWaitMs: number;
  readonly toolTimeoutMs: number;
  readonly calls: number;
  /** Milliseconds in which the calls are asked for. */
  readonly spanMs: number;
  readonly latencyMs: number;
  readonly commitMs: number;
  readonly processesPerHost: number;
  readonly slots: number;
  /** Messages that a stream carries before its reader must take one. */
  readonly windowMessages: number;

  // Mean milliseconds between troubles; Infinity for none.
  readonly crashEveryMs: number;
  readonly restartEveryMs: number;
  readonly stallEveryMs: number;
  readonly wallStepEveryMs: number;
  readonly journalTroubleEveryMs: number;
  readonly cutEveryMs: number;
  readonly freezeEveryMs: number;
  readonly deathEveryMs: number;
  readonly leaveEveryMs: number;
  readonly sessionEndEveryMs: number;
  readonly strangerEveryMs: number;

  // Probabilities.
  readonly slowStart: number;
  readonly lostRequest: number;
  readonly lostAnswer: number;
  readonly doubledRequest: number;
  readonly refusedAppend: number;
  readonly lateAttach: number;
  readonly cancel: number;
  readonly shortTimeout: number;
  readonly secondCaller: number;
  readonly callerLeaves: number;
  readonly badCall: number;
  readonly keepsNoList: number;
  readonly outboxFile: number;
  /** All calls at once, more than may wait. */
  readonly flood: boolean;
  /** Inputs so large that a slow reader is closed. */
  readonly largeInputs: boolean;
}

/** Some worlds are there for one window that chance alone would rarely open. */
export type WorldKind = "plain" | "flood" | "large";

export function kindOf(world: number): WorldKind {
  return world % 50 === 7 ? "flood" : world % 50 === 31 ? "large" : "plain";
}

export function drawWeather(random: Random, kind: WorldKind): Weather {
  const sometimes = (probability: number, meanMs: number): number =>
    random.chance(probability) ? meanMs * (0.5 + random.next()) : Number.POSITIVE_INFINITY;
  const maybe = (probability: number, most: number): number => (random.chance(probability) ? most * random.next() : 0);
  const heartbeatMs = random.pick([500, 1000, 1000, 2000]);
  const restarts = random.chance(0.7);
  const weather: Weather = {
    heartbeatMs,
    graceMs: heartbeatMs * random.pick([5, 6, 10]),
    hostWaitMs: random.pick([300, 1000, 4000]),
    toolTimeoutMs: random.pick([5000, 20_000, 60_000]),
    calls: kind === "flood" ? 1200 : kind === "large" ? 60 : random.between(150, 500),
    spanMs: random.pick([20_000, 40_000, 80_000]),
    latencyMs: random.pick([1, 5, 20, 80]),
    commitMs: random.pick([0, 1, 4, 30]),
    processesPerHost: random.pick([1, 1, 2, 3, 4]),
    slots: random.pick([1, 2, 4, 8, 0]),
    windowMessages: random.pick([1, 2, 4, 64]),
    crashEveryMs: restarts ? sometimes(0.6, 12_000) : Number.POSITIVE_INFINITY,
    restartEveryMs: restarts ? sometimes(0.4, 20_000) : Number.POSITIVE_INFINITY,
    stallEveryMs: sometimes(0.25, 15_000),
    wallStepEveryMs: restarts ? Number.POSITIVE_INFINITY : sometimes(0.6, 10_000),
    journalTroubleEveryMs: sometimes(0.35, 10_000),
    cutEveryMs: sometimes(0.7, 3000),
    freezeEveryMs: sometimes(0.5, 6000),
    deathEveryMs: sometimes(0.6, 8000),
    leaveEveryMs: sometimes(0.5, 10_000),
    sessionEndEveryMs: sometimes(0.6, 8000),
    strangerEveryMs: sometimes(0.4, 2000),
    slowStart: 0.1,
    lostRequest: maybe(0.5, 0.1),
    lostAnswer: maybe(0.5, 0.15),
    doubledRequest: maybe(0.4, 0.1),
    refusedAppend: maybe(0.35, 0.05),
    lateAttach: maybe(0.5, 0.3),
    cancel: maybe(0.7, 0.2),
    shortTimeout: maybe(0.6, 0.3),
    secondCaller: maybe(0.5, 0.15),
    callerLeaves: maybe(0.5, 0.2),
    badCall: maybe(0.5, 0.1),
    keepsNoList: maybe(0.3, 0.5),
    outboxFile: random.chance(0.6) ? random.next() : 0,
    flood: kind === "flood",
    largeInputs: kind === "large",
  };
  if (kind === "flood") return { ...weather, processesPerHost: 1, slots: 1 };
  if (kind === "large") return { ...weather, processesPerHost: 1, slots: 0, windowMessages: 1, spanMs: 10_000, freezeEveryMs: 1000 };
  return weather;
}
