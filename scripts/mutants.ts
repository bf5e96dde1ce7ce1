/**
 * Plants faults, one at a time, each in a throw-away copy of the sources, and runs the suite that has to notice it.
 * `npm run mutants -- NAME...` plants those faults alone. Ends with code 1, by name, when a fault is not noticed, when
 * an edit has no place any more, or when a suite fails for another reason than a failed test.
 */
import { parseArgs } from "node:util";
import type { Fault } from "../tests/mutants/fault.js";
import { FAULTS } from "../tests/mutants/faults.js";
import { Ground } from "../tests/mutants/ground.js";
import { runSuite } from "../tests/mutants/suite-run.js";
import { flawsOf, type Verdict, verdictOf } from "../tests/mutants/verdict.js";

/** What two cores bear. */
const AT_ONCE = 2;

const { positionals } = parseArgs({ allowPositionals: true });
const unknown = positionals.filter((name) => !FAULTS.some((fault) => fault.name === name));
if (unknown.length > 0) {
  console.error(`there is no fault ${unknown.join(", ")}; name some of: ${FAULTS.map(({ name }) => name).join(" ")}`);
  process.exit(2);
}
const faults = FAULTS.filter(({ name }) => positionals.length === 0 || positionals.includes(name));

const interrupted = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort());

const begun = performance.now();
const seconds = (since: number): string => ((performance.now() - since) / 1000).toFixed(1);
const width = Math.max(...faults.map(({ name }) => name.length));
const failures: string[] = [];

{
  using ground = new Ground(new URL("..", import.meta.url).pathname);
  const files = [...new Set(faults.map(({ suite }) => suite.file))].sort();
  const unchanged = await runSuite(ground.unchanged, { files, workers: AT_ONCE }, interrupted.signal);
  failures.push(
    ...flawsOf(
      unchanged,
      faults.map(({ suite }) => suite),
    ),
  );
  if (failures.length === 0) {
    console.log(`${files.length} suites pass without a fault, in ${seconds(begun)} s\n`);
    console.log(`${"fault".padEnd(width)}  seconds  killed by`);
    const waiting = faults.values();
    const plantOneByOne = async (): Promise<void> => {
      for (const fault of waiting) {
        if (interrupted.signal.aborted) return;
        await judge(ground, fault);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, plantOneByOne));
  }
}

if (interrupted.signal.aborted) failures.push("the run was interrupted before it was over");
console.log(
  failures.length === 0
    ? `\n${faults.length} faults planted, ${faults.length} killed, in ${seconds(begun)} s`
    : `\nfailed after ${seconds(begun)} s:`,
);
for (const failure of failures) console.error(failure);
process.exitCode = failures.length === 0 ? 0 : 1;

async function judge(ground: Ground, fault: Fault): Promise<void> {
  const { name, what, suite } = fault;
  const since = performance.now();
  let verdict: Verdict;
  try {
    const directory = ground.plant(fault);
    verdict = verdictOf(await runSuite(directory, { files: [suite.file], test: suite.test, workers: 1 }, interrupted.signal));
    ground.discard(directory);
  } catch (thrown) {
    verdict = { type: "broken", why: thrown instanceof Error ? thrown.message : String(thrown) };
  }
  const row = (text: string): void => console.log(`${name.padEnd(width)}  ${seconds(since).padStart(7)}  ${text}`);
  switch (verdict.type) {
    case "killed": {
      const [first, ...others] = verdict.by;
      row(`${suite.file}: ${first}${others.length === 0 ? "" : ` (and ${others.length} more)`}`);
      return;
    }
    case "survived":
      row("SURVIVED");
      failures.push(
        `${name} survived (${what}): ${suite.file}${suite.test === undefined ? "" : ` -t ${JSON.stringify(suite.test)}`} passes with it; write the test that fails`,
      );
      return;
    case "broken":
      row("NOT JUDGED");
      failures.push(`${name} was not judged by a test: ${verdict.why}`);
      return;
  }
}
