/** What many rounds add up to, in words a person can check. */
import type { Evidence } from "./evidence.js";
import type { Broken, Promised, Verdict } from "./oracle.js";

export interface Judged {
  readonly evidence: Evidence;
  readonly verdict: Verdict;
}

export class Report {
  readonly #seed: number;
  rounds = 0;
  calls = 0;
  mostRuns = 0;
  excused = 0;
  afterServerKill = { calls: 0, ended: 0 };
  readonly endings = new Map<string, number>();
  readonly kills = new Map<string, number>();
  readonly cuts = new Map<string, number>();
  readonly #broken = new Map<Promised, number>();
  readonly #failed: Judged[] = [];
  broughtBack = 0;
  #lateOutcomes = 0;
  #answers = 0;

  constructor(seed: number) {
    this.#seed = seed;
  }

  add({ evidence, verdict }: Judged): void {
    this.rounds++;
    this.calls += evidence.calls.length;
    this.mostRuns = Math.max(this.mostRuns, verdict.mostRuns);
    this.excused += verdict.excused;
    this.#lateOutcomes += verdict.lateOutcomes;
    this.broughtBack += verdict.broughtBack;
    this.#answers += evidence.answers.length;
    this.afterServerKill.calls += verdict.afterServerKill.calls;
    this.afterServerKill.ended += verdict.afterServerKill.ended;
    for (const [ending, count] of verdict.endings) increase(this.endings, ending, count);
    for (const { kind, killedBy } of evidence.lives) if (killedBy !== undefined) increase(this.kills, `${kind} ${killedBy}`);
    for (const [how, count] of Object.entries(evidence.cuts)) increase(this.cuts, how, count);
    for (const { promise } of verdict.broken) increase(this.#broken, promise);
    if (verdict.broken.length > 0) this.#failed.push({ evidence, verdict });
  }

  broken(promise: Promised): number {
    return this.#broken.get(promise) ?? 0;
  }

  get isClean(): boolean {
    return this.#failed.length === 0 && this.afterServerKill.calls === this.afterServerKill.ended;
  }

  /** The numbers. */
  summary(): string {
    const { calls, ended } = this.afterServerKill;
    const percent = calls === 0 ? "-" : `${((100 * ended) / calls).toFixed(2)} %`;
    return [
      `seed                                        ${this.#seed}`,
      `rounds                                      ${this.rounds}`,
      `calls                                       ${this.calls} (answers checked: ${this.#answers})`,
      `kills                                       ${sum(this.kills)}`,
      ...lines(this.kills),
      `cuts                                        ${sum(this.cuts)}`,
      ...lines(this.cuts),
      `endings                                     ${sum(this.endings)}, late outcomes beside them ${this.#lateOutcomes}`,
      ...lines(this.endings),
      `outcomes brought back out of a file         ${this.broughtBack}`,
      `runs per call, at most                      ${this.mostRuns}`,
      `runs that should not have been              ${this.broken("runs")}`,
      `acknowledged records lost                   ${this.broken("acknowledged")}`,
      `calls without exactly one ending            ${this.broken("one ending")}`,
      `endings that are not true                   ${this.broken("truth")}`,
      `avoidable unknown                           ${this.broken("avoidable unknown")} (not judged, the machine stalled: ${this.excused})`,
      `laws of the journal broken                  ${this.broken("law")}`,
      `rounds that went wrong otherwise            ${this.broken("round")}`,
      `true outcomes after server kills            ${percent} (${ended} of ${calls} open calls whose host lived)`,
    ].join("\n");
  }

  /** Every failure with its seed, its round and the timeline of its call. */
  failures(): string {
    return this.#failed.map((judged) => describe(judged)).join("\n\n");
  }
}

function describe({ evidence, verdict }: Judged): string {
  const { seed, round, theme } = evidence.plan;
  const shown = verdict.broken.slice(0, 5).map((broken) => `${line(broken)}\n${timeline(evidence, broken.callId)}`);
  const more = verdict.broken.length > shown.length ? [`... and ${verdict.broken.length - shown.length} more`] : [];
  return [`FAILED seed ${seed} round ${round} (${theme})`, ...shown, ...more].join("\n");
}

function line({ promise, callId, what }: Broken): string {
  return `  ${promise}${callId === undefined ? "" : `, call ${callId}`}: ${what}`;
}

/** Everything that happened to a call and around it, in milliseconds of the round. */
export function timeline(evidence: Evidence, callId: string | undefined): string {
  const { startedAt, records, calls, answers, witnessed, log } = evidence;
  const happenings = log.map(({ at, what }) => ({ at, text: `            ${what}` }));
  const asked = calls.find((call) => call.callId === callId);
  const started = records.find(({ entry }) => entry.case === "toolCallStarted" && entry.value.callId === callId);
  if (asked !== undefined) {
    const { callId: _id, sessionId, firstAskedAt, cancelAskedAt, ...planned } = asked;
    happenings.push({ at: firstAskedAt, text: `caller      asks first, in ${sessionId}: ${JSON.stringify(planned)}` });
    if (cancelAskedAt !== undefined) happenings.push({ at: cancelAskedAt, text: "caller      asks to cancel" });
  }
  for (const answer of answers) {
    if (answer.callId === callId)
      happenings.push({
        at: answer.at,
        text: `caller      is told (${answer.by}) ${answer.callSequence ?? "?"} to ${answer.endSequence ?? "?"} ${answer.outcome}`,
      });
  }
  for (const { at, by, ...said } of witnessed) {
    const ofCall =
      ("call" in said && said.call === callId) ||
      ("callSequence" in said && started !== undefined && said.sessionId === started.sessionId && said.callSequence === started.sequence);
    const ofAll = said.what === "attached" || said.what === "welcomed" || said.what === "killed" || said.what === "stalled";
    if (ofCall || ofAll) happenings.push({ at, text: `${by.padEnd(11)} ${JSON.stringify(said)}` });
  }
  for (const { sessionId, sequence, commitTimeMs, entry } of records) {
    if (started === undefined || sessionId !== started.sessionId) continue;
    const isOfCall =
      sequence === started.sequence ||
      ((entry.case === "toolCallEnded" || entry.case === "toolCallLateOutcome" || entry.case === "toolCallCancelRequested") &&
        entry.value.callSequence === started.sequence) ||
      (entry.case === "eventEmitted" && entry.value.origin.value === started.sequence);
    if (isOfCall)
      happenings.push({ at: commitTimeMs, text: `journal     ${sequence} ${entry.case} ${JSON.stringify(entry.value, bigintAsText)}` });
  }
  return happenings
    .sort((a, b) => a.at - b.at)
    .map(({ at, text }) => `    ${String(at - startedAt).padStart(6)}  ${text}`)
    .join("\n");
}

function bigintAsText(name: string, value: unknown): unknown {
  if (name === "$typeName") return undefined;
  return typeof value === "bigint" ? String(value) : value;
}

function increase<Key>(counts: Map<Key, number>, key: Key, by = 1): void {
  counts.set(key, (counts.get(key) ?? 0) + by);
}

function sum(counts: ReadonlyMap<string, number>): number {
  return [...counts.values()].reduce((total, count) => total + count, 0);
}

function lines(counts: ReadonlyMap<string, number>): string[] {
  return [...counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, count]) => `    ${name.padEnd(40)}${count}`);
}
