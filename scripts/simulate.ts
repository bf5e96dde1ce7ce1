/** Runs the simulation: `npx tsx scripts/simulate.ts --seed N --calls N [--world N]`. A failure ends it with code 1. */
import { parseArgs } from "node:util";
import { simulate } from "../tests/simulation/run.js";

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: String(Date.now() % 1_000_000_000) },
    calls: { type: "string", default: "100000" },
    /** Begins at this world of the seed: with `--calls 1` it runs that one alone. */
    world: { type: "string", default: "0" },
  },
});

const seed = Number(values.seed);
const began = performance.now();
process.stdout.write(`seed ${seed}\n`);
const end = await simulate({ seed, calls: Number(values.calls), firstWorld: Number(values.world) });
process.stdout.write(`${end.reached.table.join("\n")}\n`);
if (end.reached.missing.length > 0) process.stdout.write(`never met: ${end.reached.missing.join("; ")}\n`);
const seconds = (performance.now() - began) / 1000;
process.stdout.write(`${end.worlds} worlds, ${end.calls} calls, ${end.happened} happenings in ${seconds.toFixed(1)} s, hash ${end.hash}\n`);
if (end.failure !== undefined) {
  const { world, story } = end.failure;
  process.stdout.write(`${story}\n`);
  process.stdout.write(`world ${world} failed; again: npx tsx scripts/simulate.ts --seed ${seed} --world ${world} --calls 1\n`);
  process.exitCode = 1;
}
