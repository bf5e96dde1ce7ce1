import { BuiltPrograms } from "./built-programs.js";
import { judge } from "./oracle.js";
import { makePlan } from "./plan.js";
import { SparePrograms } from "./program.js";
import { Report } from "./report.js";
import { runRound } from "./round.js";

export interface TortureOptions {
  readonly rounds: number;
  /** Determines what is done to whom and when; what comes of it also depends on the machine. */
  readonly seed: number;
  /** The first round; the others follow it. */
  readonly firstRound?: number;
  /** Rounds at a time, each with processes of its own. */
  readonly parallel?: number;
  /** Leaves the directories of the rounds behind. */
  readonly keep?: boolean;
  readonly onRound?: (line: string) => void;
}

/** Runs rounds and judges each. Rejects only when the harness itself cannot go on. */
export async function torture(options: TortureOptions): Promise<Report> {
  const { rounds, seed, firstRound = 0, parallel = 2, keep = false, onRound } = options;
  const report = new Report(seed);
  await using built = await BuiltPrograms.build();
  await using spares = new SparePrograms(built, { server: parallel + 1, host: 2 * parallel + 1 });
  let next = firstRound;
  const row = async (): Promise<void> => {
    while (next < firstRound + rounds) {
      const plan = makePlan(seed, next++);
      const begun = performance.now();
      const evidence = await runRound({ plan, spares, outboxes: true, keep });
      const verdict = judge(evidence);
      report.add({ evidence, verdict });
      const seconds = ((performance.now() - begun) / 1000).toFixed(1);
      const kills = evidence.lives.flatMap(({ name, killedBy }) => (killedBy === undefined ? [] : [`${name} ${killedBy}`]));
      const said = verdict.broken.length === 0 ? "ok" : `FAILED: ${verdict.broken.map(({ promise }) => promise).join(", ")}`;
      onRound?.(`round ${plan.round} (${plan.theme}): ${said}, ${seconds} s; ${kills.join(", ")}${keep ? `; ${evidence.directory}` : ""}`);
    }
  };
  await Promise.all(Array.from({ length: parallel }, row));
  return report;
}
