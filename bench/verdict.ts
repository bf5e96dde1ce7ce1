import type { SideCell } from "./side.js";

/** Both sides, measured close to each other in time: what a ratio may be taken of. */
export interface Round {
  /** By the number of calls in flight. */
  readonly cells: { readonly floor: Map<number, SideCell>; readonly brain: Map<number, SideCell> };
  /** The share of the processors that other processes took; NaN when unknown. */
  readonly foreignCpu: number;
}

type Figure = "p50Ms" | "p99Ms" | "callsPerSecond" | "serverUs" | "hostUs";

const P50_AT_MOST = 2;
const RATE_AT_LEAST = 0.4;
const QUIET_CPU = 0.1;

export function markdownTable(rounds: readonly Round[], inFlight: readonly number[]): string {
  const lines = [
    "| in flight | | p50 ms | p99 ms | calls/s | server CPU us per call | host CPU us per call | flushes per call |",
    "|---|---|---|---|---|---|---|---|",
  ];
  for (const count of inFlight) {
    for (const side of ["floor", "brain"] as const) {
      const cells = rounds.map(({ cells }) => cellOf(cells[side], count));
      const columns = [
        spread(
          cells.map((cell) => cell.p50Ms),
          2,
        ),
        spread(
          cells.map((cell) => cell.p99Ms),
          2,
        ),
        spread(
          cells.map((cell) => cell.callsPerSecond),
          0,
        ),
        spread(
          cells.map((cell) => cell.serverUs),
          0,
        ),
        spread(
          cells.map((cell) => cell.hostUs),
          0,
        ),
        spread(
          cells.map((cell) => cell.flushes / cell.calls),
          2,
        ),
      ];
      lines.push(`| ${count} | ${side} | ${columns.join(" | ")} |`);
    }
    const columns = (["p50Ms", "p99Ms", "callsPerSecond", "serverUs", "hostUs"] as const).map(
      (figure) => `${spread(ratios(rounds, count, figure), 2)}x`,
    );
    lines.push(`| ${count} | brain / floor | ${columns.join(" | ")} | |`);
  }
  return `${lines.join("\n")}\n`;
}

/** Two targets, which noise may miss, and one count, which it may not. */
export function judge(rounds: readonly Round[]): { lines: string[]; flushesExact: boolean } {
  const p50 = median(ratios(rounds, 1, "p50Ms"));
  const rate = median(ratios(rounds, 128, "callsPerSecond"));
  const flushes = rounds.map(({ cells }) => cellOf(cells.brain, 1));
  const flushesExact = flushes.every((cell) => cell.calls > 0 && cell.flushes === 2 * cell.calls);
  const perCall = flushes.reduce((sum, cell) => sum + cell.flushes, 0) / flushes.reduce((sum, cell) => sum + cell.calls, 0);
  const lines = [
    `${mark(p50 <= P50_AT_MOST)}  p50 at 1 in flight is ${p50.toFixed(2)}x the floor (at most ${P50_AT_MOST}x)`,
    `${mark(rate >= RATE_AT_LEAST)}  rate at 128 in flight is ${rate.toFixed(2)}x the floor (at least ${RATE_AT_LEAST}x)`,
    `${mark(flushesExact)}  ${perCall.toFixed(flushesExact ? 2 : 6)} flushes per call at 1 in flight (exactly 2)`,
  ];
  const foreign = Math.max(...rounds.map(({ foreignCpu }) => foreignCpu));
  if (foreign > QUIET_CPU) {
    lines.push(
      `NOTE  other processes took up to ${Math.round(100 * foreign)} % of the processors; run it on a quiet machine for figures that count`,
    );
  }
  return { lines, flushesExact };
}

function ratios(rounds: readonly Round[], inFlight: number, figure: Figure): number[] {
  return rounds.map(({ cells }) => cellOf(cells.brain, inFlight)[figure] / cellOf(cells.floor, inFlight)[figure]);
}

function cellOf(cells: ReadonlyMap<number, SideCell>, inFlight: number): SideCell {
  const cell = cells.get(inFlight);
  if (cell === undefined) throw new Error(`nothing was measured with ${inFlight} in flight`);
  return cell;
}

function spread(values: readonly number[], digits: number): string {
  const middle = median(values).toFixed(digits);
  const [least, most] = [Math.min(...values).toFixed(digits), Math.max(...values).toFixed(digits)];
  return least === most ? middle : `${middle} [${least} to ${most}]`;
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? Number.NaN;
}

function mark(passes: boolean): string {
  return passes ? "PASS" : "FAIL";
}
