/**
 * Decides about a round, from the evidence alone, whether Brain kept its promises.
 *
 * 1. A function runs at most once, and never without its started record.
 * 2. Every call has exactly one start and one ending, and its callers were told that ending.
 * 3. What was acknowledged is in the journal: endings told to callers, events told to functions, outcomes told to hosts.
 * 4. An ending is true: `ok` and the function's own error carry its value, `command_not_delivered` and what was given up
 *    while waiting never ran, `timeout` comes at the deadline, `cancelled` after somebody asked for it.
 * 5. `unknown` is avoidable unless the process that had the call was killed, and either its outcome was not complete or
 *    its report had not been acknowledged and lay in no file that a successor brought back within the grace.
 */
import type { ToolCallEnded, ToolCallLateOutcome, ToolCallStarted } from "@aexhq/brain-proto";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { type AskedCall, type Evidence, outcomeText, type ProcessLife } from "./evidence.js";
import type { FiledRecord } from "./journal-records.js";
import { TIMES } from "./plan.js";
import type { Line, Witnessed } from "./witness.js";

export type Promised = "runs" | "one ending" | "acknowledged" | "truth" | "avoidable unknown" | "law" | "round";

export interface Broken {
  readonly promise: Promised;
  readonly callId?: string;
  readonly what: string;
}

export interface Verdict {
  readonly broken: readonly Broken[];
  /** Endings by status and code. */
  readonly endings: ReadonlyMap<string, number>;
  readonly mostRuns: number;
  readonly lateOutcomes: number;
  /** Outcomes that a successor reported out of its predecessor's file, and that became the ending. */
  readonly broughtBack: number;
  /** Calls that were open when a server was killed and whose host lived on, and how many of them ended truly. */
  readonly afterServerKill: { readonly calls: number; readonly ended: number };
  /** Calls not judged for `unknown` because a process they needed got no time to run. */
  readonly excused: number;
}

type Of<What extends Line["what"]> = Extract<Line, { what: What }> & Pick<Witnessed, "by" | "at">;

/** All that is known of one call. */
interface Case {
  readonly asked: AskedCall;
  readonly started: { readonly record: FiledRecord; readonly value: ToolCallStarted };
  readonly ended: { readonly record: FiledRecord; readonly value: ToolCallEnded; readonly text: string };
  readonly late: ToolCallLateOutcome | undefined;
  readonly starts: readonly Of<"start">[];
  readonly end: Of<"end"> | undefined;
  /** The process it was sent to. */
  readonly receiver: ProcessLife | undefined;
}

/** When the processes of a call got no time for so long in all, the machine, and not Brain, was too slow for the round's times. */
const STALL_MS = TIMES.graceMs / 4;

export function judge(evidence: Evidence): Verdict {
  const broken: Broken[] = [];
  const breaks = (promise: Promised, what: string, callId?: string): void => {
    broken.push({ promise, what, ...(callId === undefined ? {} : { callId }) });
  };
  for (const { law, message } of evidence.journalProblems) breaks("law", `${law}: ${message}`);
  for (const { callId, what } of evidence.complaints) breaks("round", what, callId);

  const endings = new Map<string, number>();
  let mostRuns = 0;
  let lateOutcomes = 0;
  let excused = 0;
  const cases: Case[] = [];
  for (const asked of evidence.calls) {
    const found = caseOf(evidence, asked, (promise, what) => breaks(promise, what, asked.callId));
    const starts = evidence.witnessed.filter((line): line is Of<"start"> => line.what === "start" && line.call === asked.callId);
    mostRuns = Math.max(mostRuns, starts.length);
    if (starts.length > 1) breaks("runs", `the function ran ${starts.length} times`, asked.callId);
    if (found === undefined) continue;
    cases.push(found);
    if (found.late !== undefined) lateOutcomes++;
    const kind = kindOf(found);
    endings.set(kind, (endings.get(kind) ?? 0) + 1);
    const untrue = untruth(evidence, found);
    if (untrue?.promise === "avoidable unknown" && isStalled(evidence, found)) excused++;
    else if (untrue !== undefined) breaks(untrue.promise, untrue.what, asked.callId);
  }
  for (const { promise, what, callId } of lostAcknowledgements(evidence, cases)) breaks(promise, what, callId);
  const broughtBack = evidence.witnessed.filter(
    (line) => line.what === "acknowledged" && line.disposition === "RECORDED" && isByAnother(cases, line),
  );
  return {
    broken,
    endings,
    mostRuns,
    lateOutcomes,
    broughtBack: broughtBack.length,
    afterServerKill: afterServerKill(evidence, cases),
    excused,
  };
}

function isByAnother(cases: readonly Case[], { by, sessionId, callSequence }: Of<"acknowledged">): boolean {
  const found = cases.find(({ started: { record } }) => record.sessionId === sessionId && record.sequence === callSequence);
  return found?.receiver !== undefined && found.receiver.name !== by;
}

function caseOf(evidence: Evidence, asked: AskedCall, breaks: (promise: Promised, what: string) => void): Case | undefined {
  const { records, witnessed } = evidence;
  const starts = witnessed.filter((line): line is Of<"start"> => line.what === "start" && line.call === asked.callId);
  const startedRecords = records.filter(({ entry }) => entry.case === "toolCallStarted" && entry.value.callId === asked.callId);
  const [record] = startedRecords;
  if (startedRecords.length !== 1 || record?.entry.case !== "toolCallStarted") {
    if (starts.length > 0 && startedRecords.length === 0) breaks("runs", "the function ran, and no record starts the call");
    breaks("one ending", `${startedRecords.length} records start the call`);
    return undefined;
  }
  for (const start of starts) {
    if (start.sessionId !== record.sessionId || start.callSequence !== record.sequence) {
      breaks("runs", `the function ran as ${start.sessionId}/${start.callSequence}, the record is ${record.sessionId}/${record.sequence}`);
    }
  }
  const ofCall = records.filter(
    ({ sessionId, entry }) =>
      sessionId === record.sessionId &&
      (entry.case === "toolCallEnded" || entry.case === "toolCallLateOutcome") &&
      entry.value.callSequence === record.sequence,
  );
  const endedRecords = ofCall.filter(({ entry }) => entry.case === "toolCallEnded");
  const [ended] = endedRecords;
  if (endedRecords.length !== 1 || ended?.entry.case !== "toolCallEnded") {
    breaks("one ending", `${endedRecords.length} records end the call`);
    return undefined;
  }
  const late = ofCall.find(({ entry }) => entry.case === "toolCallLateOutcome")?.entry;
  const instanceId = record.entry.value.receiver?.instanceId;
  const by = witnessed.find((line) => line.what === "attached" && line.instanceId === instanceId)?.by;
  return {
    asked,
    started: { record, value: record.entry.value },
    ended: { record: ended, value: ended.entry.value, text: outcomeText(ended.entry.value.outcome) },
    late: late?.case === "toolCallLateOutcome" ? late.value : undefined,
    starts,
    end: witnessed.find((line): line is Of<"end"> => line.what === "end" && line.call === asked.callId),
    receiver: evidence.lives.find(({ name }) => name === by),
  };
}

function kindOf({ ended }: Case): string {
  const ending = ended.value.outcome?.status;
  return ending?.case === undefined ? "none" : ending.case === "ok" ? "ok" : `${ending.case} ${ending.value.code}`;
}

/** What is untrue about the ending, or undefined. */
function untruth(evidence: Evidence, found: Case): Broken | undefined {
  const { asked, started, ended, starts, end } = found;
  const untrue = (what: string): Broken => ({ promise: "truth", what: `${ended.text}: ${what}` });
  const kind = kindOf(found);
  switch (kind) {
    case "ok":
      if (end === undefined || end.throws) return untrue("the function returned nothing");
      return ended.text === `ok ${JSON.stringify(end.value)}` ? undefined : untrue(`the function returned ${end.value}`);
    case "error tool_error":
      if (end === undefined || !end.throws) return untrue("the function threw nothing");
      return ended.text === `error tool_error ${end.value}` ? undefined : untrue(`the function threw ${end.value}`);
    case "error command_not_delivered":
      return starts.length > 0 ? untrue("the function ran") : undefined;
    case "error host_unavailable":
    case "error host_overloaded":
      return starts.length > 0 || started.value.receiver !== undefined ? untrue("it did not only wait") : undefined;
    case "timeout deadline_passed": {
      const { deadline } = started.value;
      if (deadline === undefined || ended.record.commitTimeMs < timestampMs(deadline) - 1) return untrue("the deadline had not passed");
      return asked.timeoutMs > TIMES.graceMs * 10 ? untrue("the call had much more time than the round took") : undefined;
    }
    case "cancelled cancel_requested":
      return asked.cancelAskedAt === undefined || asked.cancelAskedAt > ended.record.commitTimeMs
        ? untrue("nobody had asked for it")
        : undefined;
    case "unknown host_instance_lost":
      return avoidable(evidence, found);
    default:
      return untrue("nothing in this round leads to it");
  }
}

/** Why `unknown` could have been avoided, or undefined when it could not. */
function avoidable(evidence: Evidence, found: Case): Broken | undefined {
  const { started, ended, receiver, late } = found;
  const avoidableBecause = (what: string): Broken => ({ promise: "avoidable unknown", what });
  if (receiver?.killedAt === undefined || receiver.killedAt > ended.record.commitTimeMs) {
    return avoidableBecause(`process ${receiver?.name ?? "?"}, which had the call, was not killed`);
  }
  const { sessionId, sequence } = started.record;
  const ofCall = evidence.witnessed.filter(
    (line) => "callSequence" in line && line.sessionId === sessionId && line.callSequence === sequence && line.by === receiver.name,
  );
  if (ofCall.some(({ what }) => what === "acknowledged")) return avoidableBecause("the report of its outcome had been acknowledged");
  const isComplete = ofCall.some(({ what }) => what === "reporting");
  if (!isComplete || !receiver.outbox) return undefined;
  const successors = evidence.lives.filter(({ place, startedAt }) => place === receiver.place && startedAt > receiver.startedAt);
  const back = evidence.witnessed.find((line) => line.what === "welcomed" && successors.some(({ name }) => name === line.by));
  const isBackInTime = back !== undefined && back.at < receiver.killedAt + TIMES.graceMs - 2 * TIMES.heartbeatMs;
  if (isBackInTime) return avoidableBecause("its outcome lay in a file, and the successor that holds it was back within the grace");
  return late === undefined ? avoidableBecause("its outcome lay in a file, and was not even kept as late outcome") : undefined;
}

function isStalled(evidence: Evidence, { started, ended, receiver }: Case): boolean {
  const needed = new Set(
    evidence.lives.filter(({ kind, place }) => kind === "server" || place === receiver?.place).map(({ name }) => name),
  );
  needed.add("harness");
  let stalledMs = 0;
  for (const line of evidence.witnessed) {
    const isMeanwhile = line.at >= started.record.commitTimeMs && line.at <= ended.record.commitTimeMs + TIMES.heartbeatMs;
    if (line.what === "stalled" && needed.has(line.by) && isMeanwhile) stalledMs += line.ms;
  }
  return stalledMs >= STALL_MS;
}

function lostAcknowledgements(evidence: Evidence, cases: readonly Case[]): Broken[] {
  const { records, witnessed, answers } = evidence;
  const lost: Broken[] = [];
  const loses = (callId: string | undefined, what: string): void => {
    lost.push({ promise: "acknowledged", what, ...(callId === undefined ? {} : { callId }) });
  };
  const byId = new Map(cases.map((found) => [found.asked.callId, found]));
  const bySequence = new Map(cases.map((found) => [`${found.started.record.sessionId}/${found.started.record.sequence}`, found]));
  for (const { callId, by, outcome, callSequence, endSequence } of answers) {
    const found = byId.get(callId);
    if (found === undefined) {
      loses(callId, `a caller was told (${by}) ${outcome}, and the journal has no such call`);
    } else if (
      outcome !== found.ended.text ||
      (callSequence !== undefined && callSequence !== found.started.record.sequence) ||
      (endSequence !== undefined && endSequence !== found.ended.record.sequence)
    ) {
      const recorded = `${found.started.record.sequence} to ${found.ended.record.sequence} ${found.ended.text}`;
      loses(callId, `a caller was told (${by}) ${callSequence} to ${endSequence} ${outcome}, the journal has ${recorded}`);
    }
  }
  const marks = new Map<string, FiledRecord[]>();
  for (const record of records) {
    if (record.entry.case !== "eventEmitted") continue;
    const { mark } = JSON.parse(record.entry.value.dataJson) as { mark: string };
    marks.set(mark, [...(marks.get(mark) ?? []), record]);
  }
  for (const [mark, events] of marks) {
    if (events.length > 1) lost.push({ promise: "law", what: `event ${mark} is recorded ${events.length} times` });
  }
  for (const line of witnessed) {
    if (line.what === "emitted") {
      const event = marks.get(line.mark)?.[0];
      if (event?.sequence !== line.sequence) {
        loses(line.call, `event ${line.mark} was acknowledged as ${line.sequence}, the journal has it as ${event?.sequence ?? "nothing"}`);
      }
    }
    if (line.what === "acknowledged") {
      const found = bySequence.get(`${line.sessionId}/${line.callSequence}`);
      if (found === undefined)
        loses(undefined, `a report for ${line.sessionId}/${line.callSequence} was answered, and there is no such call`);
      else if (!agrees(line, found)) {
        const lateText = found.late === undefined ? "no late outcome" : outcomeText(found.late.outcome);
        loses(
          found.asked.callId,
          `the report of ${line.outcome} was answered ${line.disposition}, the journal has ${found.ended.text} and ${lateText}`,
        );
      }
    }
  }
  return lost;
}

/** Endings that host and Brain put in words of their own, and mean the same by. */
const ENDED_BY_BRAIN = /^(?:timeout|cancelled) \S+/;

function agrees({ disposition, outcome }: Of<"acknowledged">, { ended, late }: Case): boolean {
  switch (disposition) {
    case "RECORDED":
      return outcome === ended.text;
    case "DUPLICATE":
      return (
        outcome === ended.text ||
        (ENDED_BY_BRAIN.test(outcome) && ENDED_BY_BRAIN.exec(outcome)?.[0] === ENDED_BY_BRAIN.exec(ended.text)?.[0])
      );
    case "LATE":
      return outcome !== ended.text && late !== undefined;
    default:
      return false;
  }
}

/** Calls that were open when a server was killed, and whose process lived on until they ended. */
function afterServerKill(evidence: Evidence, cases: readonly Case[]): { calls: number; ended: number } {
  const kills = evidence.lives
    .filter(({ kind }) => kind === "server")
    .flatMap(({ killedAt }) => (killedAt === undefined ? [] : [killedAt]));
  let calls = 0;
  let ended = 0;
  for (const found of cases) {
    const { started, receiver } = found;
    const endedAt = found.ended.record.commitTimeMs;
    const wasOpen = kills.some((killedAt) => started.record.commitTimeMs <= killedAt && endedAt > killedAt);
    const lived = receiver !== undefined && (receiver.killedAt === undefined || receiver.killedAt > endedAt);
    if (!wasOpen || !lived) continue;
    const isTrue = untruth(evidence, found) === undefined && !kindOf(found).startsWith("unknown");
    if (!isTrue && isStalled(evidence, found)) continue;
    calls++;
    if (isTrue) ended++;
  }
  return { calls, ended };
}
