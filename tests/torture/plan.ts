/** What is to happen in a round: everything in it follows from the seed and the round's number. */
import { HOST_POINTS, type HostPoint, type Kill, SERVER_POINTS, type ServerPoint } from "./kill-points.js";
import type { Cut } from "./relay.js";
import { SeededRandom } from "./seeded-random.js";

/** Short enough for many rounds, long enough for a machine that does other things as well. */
export const TIMES = { heartbeatMs: 200, graceMs: 2000, hostWaitMs: 1500 } as const;
/** How long faults go on. */
export const CHAOS_MS = 1600;
/** A silence that is still far from the grace. */
const LONGEST_FREEZE_MS = 700;

export const ROUTES = ["attach", "watch", "sse"] as const;

/** A place where a host process runs; a killed one has a successor in the same place. */
export interface PlaceOfHost {
  readonly environment: "one" | "two";
  readonly route: (typeof ROUTES)[number];
  readonly maxConcurrentCalls: number;
  /** Keeps finished outcomes in a file that its successor takes up. */
  readonly outbox: boolean;
  /** Of the processes in this place, one after the other. */
  readonly kills: readonly Kill<HostPoint>[];
}

export interface PlannedCall {
  readonly callId: string;
  readonly session: 0 | 1;
  readonly environment: "one" | "two";
  readonly atMs: number;
  readonly timeoutMs: number;
  readonly work: { readonly ms: number; readonly emits: number; readonly throws: boolean };
  /** After it was first asked for. */
  readonly cancelAfterMs?: number;
  readonly caller: "sdk" | "raw";
  /** How long a raw caller waits for one answer before it hangs up and asks again. */
  readonly patienceMs: number;
  /** Asked once more after it was answered. */
  readonly confirmed: boolean;
}

export type PlannedFault = { readonly atMs: number } & (
  | { readonly what: "kill server" }
  | { readonly what: "kill host"; readonly place: number }
  | { readonly what: "kill both"; readonly place: number }
  /** In order: it finishes what it can within its bound, says goodbye, and has a successor. */
  | { readonly what: "restart server" }
  | { readonly what: "restart host"; readonly place: number }
  /** `link` is a place, or -1 for the callers. */
  | { readonly what: "cut"; readonly link: number; readonly how: Cut }
  | { readonly what: "freeze"; readonly link: number; readonly forMs: number; readonly ending: "thaw" | Cut }
  /** One connection of the link, chosen by its age, carries nothing more and is never ended. */
  | { readonly what: "stick"; readonly link: number; readonly nth: number }
  | { readonly what: "slow"; readonly link: number; readonly forMs: number; readonly delayMs: number }
);

export interface Plan {
  readonly seed: number;
  readonly round: number;
  readonly theme: string;
  readonly journalWriter: "inline" | "thread";
  readonly places: readonly PlaceOfHost[];
  readonly calls: readonly PlannedCall[];
  readonly faults: readonly PlannedFault[];
  /** Of the server's processes, one after the other. */
  readonly serverKills: readonly Kill<ServerPoint>[];
  /** Between the death of a process and the start of the next. */
  readonly restartAfterMs: readonly number[];
}

const CALLS = 20;

interface Theme {
  readonly name: string;
  /** Exact kills of successive server processes, and of successive processes in each place. */
  readonly exactServer: number;
  readonly exactHost: number;
  readonly serverKills: number;
  readonly hostKills: number;
  readonly bothKills: number;
  readonly network: number;
  readonly serverRestarts: number;
  readonly hostRestarts: number;
}

const QUIET = { exactServer: 0, exactHost: 0, serverKills: 0, hostKills: 0, bothKills: 0, network: 0, serverRestarts: 0, hostRestarts: 0 };

const THEMES: readonly Theme[] = [
  { ...QUIET, name: "server at a step", exactServer: 3 },
  { ...QUIET, name: "hosts at a step", exactHost: 2 },
  { ...QUIET, name: "network", network: 14 },
  { ...QUIET, name: "server at any time", exactServer: 1, serverKills: 2, network: 3 },
  { ...QUIET, name: "hosts at any time", hostKills: 3, network: 3 },
  { ...QUIET, name: "everything", exactServer: 1, exactHost: 1, serverKills: 1, hostKills: 1, bothKills: 1, network: 4 },
  { ...QUIET, name: "restarts in order", serverRestarts: 2, hostRestarts: 3, network: 2 },
];

/** Points that a process passes less often than the others in one round. */
const RARE: Readonly<Partial<Record<ServerPoint | HostPoint, number>>> = {
  "attach.before": 3,
  "attach.welcomed": 1,
  "attach.written": 1,
  "attach.sent": 1,
  "emit.before": 2,
  "emit.sent": 2,
  "emit.answered": 2,
};
const OFTEN = 4;

export function makePlan(seed: number, round: number): Plan {
  const random = new SeededRandom(Math.imul(seed, 1_000_003) + round);
  const theme = themeOf(round);
  // Points are walked through in order over the rounds, so that few rounds pass all of them.
  const walk = <Point extends ServerPoint | HostPoint>(points: readonly Point[], first: number, count: number): Kill<Point>[] =>
    Array.from({ length: count }, (_, index) => {
      const point = points[(seed + first + index) % points.length] as Point;
      return { point, nth: random.between(1, RARE[point] ?? OFTEN) };
    });
  const hostsBefore = PLACES * exactBefore(round, ({ exactHost }) => exactHost);
  const places = Array.from({ length: PLACES }, (_, place): PlaceOfHost => {
    const kills = walk(HOST_POINTS, hostsBefore + place * theme.exactHost, theme.exactHost);
    const route = ROUTES[(place + round) % ROUTES.length] ?? "attach";
    return {
      environment: place === 2 ? "two" : "one",
      route,
      maxConcurrentCalls: random.pick([2, 4, 100]),
      // A file is what a kill around a report is survived by.
      outbox: kills.some(({ point }) => point.startsWith("report.")) || random.chance(0.5),
      kills,
    };
  });
  return {
    seed,
    round,
    theme: theme.name,
    journalWriter: round % 4 === 3 ? "thread" : "inline",
    places,
    calls: Array.from({ length: CALLS }, (_, index) => plannedCall(random, `${round}.${index}`)),
    faults: plannedFaults(random, theme).sort((a, b) => a.atMs - b.atMs),
    serverKills: walk(
      SERVER_POINTS,
      exactBefore(round, ({ exactServer }) => exactServer),
      theme.exactServer,
    ),
    restartAfterMs: Array.from({ length: 16 }, () => random.pick([0, 20, 100, 250])),
  };
}

const PLACES = 3;

function themeOf(round: number): Theme {
  const theme = THEMES[round % THEMES.length];
  if (theme === undefined) throw new Error("there is a theme for every round");
  return theme;
}

function exactBefore(round: number, of: (theme: Theme) => number): number {
  const inTurn = THEMES.reduce((sum, theme) => sum + of(theme), 0);
  const left = THEMES.slice(0, round % THEMES.length).reduce((sum, theme) => sum + of(theme), 0);
  return Math.floor(round / THEMES.length) * inTurn + left;
}

function plannedCall(random: SeededRandom, callId: string): PlannedCall {
  const isHasty = random.chance(0.1);
  return {
    callId,
    session: random.chance(0.5) ? 1 : 0,
    environment: random.chance(0.6) ? "one" : "two",
    atMs: random.between(0, CHAOS_MS - 400),
    timeoutMs: isHasty ? random.between(50, 600) : 60_000,
    work: { ms: random.pick([0, 5, 50, 200, 500, 900]), emits: random.pick([0, 0, 1, 3]), throws: random.chance(0.15) },
    ...(random.chance(0.08) ? { cancelAfterMs: random.between(0, 500) } : {}),
    caller: random.chance(0.4) ? "sdk" : "raw",
    patienceMs: random.pick([250, 600, 1500]),
    confirmed: random.chance(0.3),
  };
}

function plannedFaults(random: SeededRandom, theme: Theme): PlannedFault[] {
  const atMs = (): number => random.between(50, CHAOS_MS - 100);
  const held = new Set<number>();
  const times = (count: number, make: () => PlannedFault): PlannedFault[] => Array.from({ length: count }, make);
  return [
    ...times(theme.serverKills, () => ({ atMs: atMs(), what: "kill server" })),
    ...times(theme.hostKills, () => ({ atMs: atMs(), what: "kill host", place: random.between(0, 2) })),
    ...times(theme.bothKills, () => ({ atMs: atMs(), what: "kill both", place: random.between(0, 2) })),
    ...times(theme.serverRestarts, () => ({ atMs: atMs(), what: "restart server" })),
    ...times(theme.hostRestarts, () => ({ atMs: atMs(), what: "restart host", place: random.between(0, 2) })),
    ...times(theme.network, () => networkFault(random, atMs(), held)),
  ];
}

/** `held` are the links that were kept from talking already: silences must not add up to a grace. */
function networkFault(random: SeededRandom, atMs: number, held: Set<number>): PlannedFault {
  const link = random.between(-1, 2);
  const how = random.pick<Cut>(["reset", "end"]);
  const kind = random.pick(["cut", "freeze", "slow", "stick"]);
  if (kind === "cut" || held.has(link)) return { atMs, what: "cut", link, how };
  held.add(link);
  // A caller finds out only after its call's own time, which a round does not wait for.
  if (kind === "stick" && link !== -1) return { atMs, what: "stick", link, nth: random.between(0, 3) };
  const forMs = random.between(100, LONGEST_FREEZE_MS);
  if (kind === "freeze") return { atMs, what: "freeze", link, forMs, ending: random.pick<"thaw" | Cut>(["thaw", "thaw", "reset", "end"]) };
  return { atMs, what: "slow", link, forMs, delayMs: random.between(1, 20) };
}
