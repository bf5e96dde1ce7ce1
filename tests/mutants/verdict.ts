/** What the runner's JSON report says, as far as it is needed here. */
export interface Report {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly message?: string;
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      readonly failureMessages?: readonly string[] | null;
    }[];
  }[];
}

/** How a run of a suite ended; `report` is missing where the runner left none. */
export interface SuiteRun {
  readonly exitCode: number | undefined;
  readonly timedOut: boolean;
  readonly report: Report | undefined;
  /** The last lines of what the runner wrote. */
  readonly tail: string;
}

export type Verdict =
  | { readonly type: "killed"; readonly by: readonly string[]; readonly why: string }
  | { readonly type: "survived" }
  /** Something failed, but no test did: that proves nothing about the suite. */
  | { readonly type: "broken"; readonly why: string };

/** What code that cannot run throws: a fault of the planting, which no test has noticed for what it is. */
const UNRUNNABLE = /^(?:ReferenceError|SyntaxError|TypeError)\b/;

/** Judges a suite that was run with a fault planted. */
export function verdictOf(run: SuiteRun): Verdict {
  if (run.timedOut) return { type: "broken", why: "the run took too long and was stopped" };
  if (run.report === undefined)
    return { type: "broken", why: `the runner ended with code ${run.exitCode} and left no report: ${run.tail}` };
  const tests = run.report.testResults.flatMap(({ assertionResults }) => assertionResults);
  const failed = tests.filter(({ status }) => status === "failed");
  if (failed.length > 0) {
    const reasons = failed.map(({ failureMessages }) => firstLine(failureMessages?.[0] ?? ""));
    if (reasons.every((reason) => UNRUNNABLE.test(reason))) {
      return { type: "broken", why: `the planted code does not run: ${reasons[0]}` };
    }
    return { type: "killed", by: failed.map(({ fullName }) => fullName), why: reasons[0] ?? "" };
  }
  const unread = run.report.testResults.find(({ status }) => status === "failed");
  if (unread !== undefined) return { type: "broken", why: `the suite does not run: ${firstLine(unread.message ?? "")}` };
  if (run.exitCode !== 0) return { type: "broken", why: `no test failed, and the runner ended with code ${run.exitCode}: ${run.tail}` };
  if (!tests.some(({ status }) => status === "passed")) return { type: "broken", why: "no test was run" };
  return { type: "survived" };
}

/**
 * Judges the suites on the unchanged sources: what is wrong with them, in one line each, or nothing. `needed` are files
 * and, with a `test`, part of the full name of tests in them that have to have passed.
 */
export function flawsOf(run: SuiteRun, needed: readonly { readonly file: string; readonly test?: string }[]): string[] {
  if (run.timedOut) return ["the unchanged suites took too long and were stopped"];
  if (run.report === undefined) return [`the unchanged suites left no report, and ended with code ${run.exitCode}: ${run.tail}`];
  const { testResults } = run.report;
  const flaws: string[] = [];
  for (const { name, status, message, assertionResults } of testResults) {
    const failed = assertionResults.filter((test) => test.status === "failed");
    for (const test of failed)
      flaws.push(`fails without any fault: ${test.fullName} (${name}): ${firstLine(test.failureMessages?.[0] ?? "")}`);
    if (failed.length === 0 && status === "failed") flaws.push(`does not run without any fault: ${name}: ${firstLine(message ?? "")}`);
  }
  for (const { file, test } of needed) {
    const suite = testResults.find(({ name }) => name.replaceAll("\\", "/").endsWith(`/${file}`));
    if (suite === undefined) flaws.push(`was not run: ${file}; is it there?`);
    else if (!suite.assertionResults.some(({ fullName, status }) => status === "passed" && fullName.includes(test ?? ""))) {
      flaws.push(
        `no test of ${file} that passes has a name with ${JSON.stringify(test ?? "")} in it; name the one that is to notice the fault`,
      );
    }
  }
  if (flaws.length === 0 && run.exitCode !== 0) {
    flaws.push(`no test failed, and the runner of the unchanged suites ended with code ${run.exitCode}: ${run.tail}`);
  }
  return flaws;
}

function firstLine(text: string): string {
  // The runner colours its messages where it thinks that somebody sees them.
  // biome-ignore lint/suspicious/noControlCharactersInRegex: that is what a colour begins with
  return (text.replaceAll(/\x1b\[[\d;]*m/g, "").split("\n", 1)[0] ?? "").slice(0, 300);
}
