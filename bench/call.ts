/**
 * What a Tool call costs in Brain, next to the floor: the smallest program that does the job with the same transport and
 * the same two commits. Both run in this one benchmark, in turns, so that the ratios hold where the figures do not.
 *
 *   npm run bench                     three rounds, about a minute
 *   npm run bench -- --quick          only whether a call costs exactly two flushes
 *   npm run bench -- --profile DIR    where Brain's time goes, with 128 calls in flight
 */
import { mkdirSync, mkdtempSync, rmSync, statfsSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { foreignCpu } from "./cpu.js";
import type { Cell } from "./measure.js";
import { hotSpots } from "./profile.js";
import { Side } from "./side.js";
import { judge, markdownTable, type Round } from "./verdict.js";

const IN_FLIGHT = [1, 128] as const;
const WARM_UP_MS = 3_000;
/** A journal checkpoints once nothing has been appended for a while; that must not fall into the other side's turn. */
const REST_MS = 400;
const TMPFS = 0x01021994;

const { values: options } = parseArgs({
  options: {
    seconds: { type: "string", default: "2.5" },
    rounds: { type: "string", default: "3" },
    "data-dir": { type: "string", default: tmpdir() },
    quick: { type: "boolean", default: false },
    profile: { type: "string" },
  },
});

const cellMs = Math.ceil(positive("seconds", options.seconds) * 1000);
const rounds = Math.ceil(positive("rounds", options.rounds));
const directory = diskDirectory(options["data-dir"]);

try {
  if (options.profile !== undefined) await profileBrain(options.profile);
  else if (options.quick) await countFlushes();
  else await compare();
} finally {
  rmSync(directory, { recursive: true, force: true });
}

/** Both sides, in turns. */
async function compare(): Promise<void> {
  const floor = await openSide("floor");
  const brain = await openSide("brain");
  const sides = { floor, brain };
  for (const side of [floor, brain]) {
    note(`warming up ${side.name}`);
    for (const inFlight of [...IN_FLIGHT].reverse()) await side.measure(inFlight, WARM_UP_MS);
  }
  const measured: Round[] = [];
  for (let round = 0; round < rounds; round++) {
    const cells: Round["cells"] = { floor: new Map(), brain: new Map() };
    const foreign = foreignCpu([...floor.pids, ...brain.pids]);
    for (const inFlight of IN_FLIGHT) {
      // Whoever comes second in one round comes first in the next.
      const turns = round % 2 === 0 ? (["floor", "brain"] as const) : (["brain", "floor"] as const);
      for (const name of turns) {
        await rest();
        cells[name].set(inFlight, await sides[name].measure(inFlight, cellMs));
      }
    }
    measured.push({ cells, foreignCpu: foreign() });
    note(`round ${round + 1} of ${rounds} done`);
  }
  await floor.close();
  await brain.close();

  print(`Node ${process.version}, ${cpus().length} x ${cpus()[0]?.model ?? "unknown processor"}, ${process.platform} ${process.arch}`);
  print(`${rounds} rounds of ${cellMs / 1000} s a cell, in turns, median of rounds [least to most]\n`);
  print(markdownTable(measured, IN_FLIGHT));
  const verdict = judge(measured);
  for (const line of verdict.lines) print(line);
  if (!verdict.flushesExact) process.exitCode = 1;
}

/** Brain alone and briefly: the count of flushes is exact, whatever else the machine does. */
async function countFlushes(): Promise<void> {
  const brain = await openSide("brain");
  await brain.measure(128, 200);
  const cell = await brain.measure(1, 500);
  await brain.close();
  const exact = isExact(cell);
  print(`${exact ? "PASS" : "FAIL"}  ${cell.flushes} flushes for ${cell.calls} calls, one in flight (exactly 2 a call)`);
  if (!exact) process.exitCode = 1;
}

async function profileBrain(into: string): Promise<void> {
  mkdirSync(into, { recursive: true });
  const brain = await openSide("brain");
  note("warming up brain");
  await brain.measure(128, WARM_UP_MS);
  for (const inFlight of [128, 1]) {
    await rest();
    const file = join(into, `brain-${inFlight}.cpuprofile`);
    const cell = await brain.measure(inFlight, cellMs, file);
    print(`\n${inFlight} in flight: ${cell.calls} calls, ${Math.round(cell.callsPerSecond)} calls/s; ${file}`);
    print(hotSpots(file, cell.calls));
  }
  await brain.close();
}

function isExact(cell: Cell): boolean {
  return cell.calls > 0 && cell.flushes === 2 * cell.calls;
}

function openSide(name: "floor" | "brain"): Promise<Side> {
  const sessions = Math.max(...IN_FLIGHT);
  return Side.open(name, join(directory, name), sessions);
}

function diskDirectory(parent: string): string {
  mkdirSync(parent, { recursive: true });
  if (statfsSync(parent).type === TMPFS) {
    throw new Error(`${parent} is kept in memory, where a flush costs nothing; name a directory on a disk with --data-dir`);
  }
  return mkdtempSync(join(parent, "brain-bench-"));
}

function positive(name: string, text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new Error(`--${name} "${text}" is not a number above 0`);
  return value;
}

function rest(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, REST_MS));
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** What goes on, apart from the figures. */
function note(text: string): void {
  process.stderr.write(`${text}\n`);
}
