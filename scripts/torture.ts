/**
 * Kills servers and hosts, cuts and freezes their network, and checks every promise after each round.
 * npm run torture -- --rounds 1000 --seed 7 [--first ROUND] [--parallel 2] [--keep]
 */
import { parseArgs } from "node:util";
import { torture } from "../tests/torture/torture.js";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "20" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    first: { type: "string", default: "0" },
    parallel: { type: "string", default: "2" },
    keep: { type: "boolean", default: false },
  },
});

const begun = performance.now();
const report = await torture({
  rounds: Number(values.rounds),
  seed: Number(values.seed),
  firstRound: Number(values.first),
  parallel: Number(values.parallel),
  keep: values.keep,
  onRound: (line) => console.log(line),
});
console.log(`\n${report.summary()}`);
console.log(`seconds                                     ${((performance.now() - begun) / 1000).toFixed(0)}`);
if (!report.isClean) {
  console.error(`\n${report.failures()}`);
  process.exitCode = 1;
}
