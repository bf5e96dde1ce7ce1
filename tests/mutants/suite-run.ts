import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Report, SuiteRun } from "./verdict.js";

/** Far above what the slowest of the suites takes on a busy machine. */
const RUN_MAX_MS = 180_000;
const TAIL_LENGTH = 1_000;

export interface SuiteChoice {
  /** Relative to the directory. */
  readonly files: readonly string[];
  /** Part of the full name of the tests to run; all of them without it. */
  readonly test?: string | undefined;
  readonly workers: number;
}

/** Runs tests of the copy in `directory` with the runner's own program, in a process of its own. */
export async function runSuite(directory: string, { files, test, workers }: SuiteChoice, signal: AbortSignal): Promise<SuiteRun> {
  const reportFile = join(directory, "suite-report.json");
  const runner = spawn(
    process.execPath,
    [
      join(directory, "node_modules/vitest/vitest.mjs"),
      "run",
      ...files,
      `--root=${directory}`,
      `--maxWorkers=${workers}`,
      "--reporter=json",
      `--outputFile=${reportFile}`,
      ...(test === undefined ? [] : [`--testNamePattern=${test.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&")}`]),
    ],
    // A group of its own, so that it can be ended with everything it has started.
    { cwd: directory, detached: true, stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, NO_COLOR: "1", FORCE_COLOR: undefined } },
  );
  let tail = "";
  const keep = (chunk: Buffer): void => {
    tail = (tail + chunk.toString()).slice(-TAIL_LENGTH);
  };
  runner.stdout.on("data", keep);
  runner.stderr.on("data", keep);
  let timedOut = false;
  const end = (): void => {
    if (runner.pid === undefined) return;
    try {
      process.kill(-runner.pid, "SIGKILL");
    } catch {
      // It has just ended by itself.
    }
  };
  const timer = setTimeout(() => {
    timedOut = true;
    end();
  }, RUN_MAX_MS);
  signal.addEventListener("abort", end);
  const exitCode = await new Promise<number | undefined>((resolve, reject) => {
    runner.on("error", reject);
    runner.on("close", (code) => resolve(code ?? undefined));
  });
  clearTimeout(timer);
  signal.removeEventListener("abort", end);
  return { exitCode, timedOut, report: readReport(reportFile), tail: tail.trim() };
}

function readReport(file: string): Report | undefined {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as Report;
  } catch {
    // The runner did not come to write one, and its exit code and its last lines say why.
    return undefined;
  }
}
