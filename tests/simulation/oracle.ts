/**
 * Judges a world from outside: by what was asked, what was delivered, what ran and what is durable.
 *
 * 1. The journal keeps its laws at every commit (L3, L5, L6, L7), and every ending has its true cause.
 * 2. A command is written and run at most once, after its start is durable, at the instance and generation it names.
 * 3. `unknown` only when every holder is gone for good; and then, without delay.
 * 4. `command_not_delivered` only for what never ran and never will.
 * 5. Whatever anybody was told is durable when it is told.
 */
import type { Record as JournalRecord, Outcome } from "@aexhq/brain-proto";
import { sameOutcome } from "../../server/src/core/outcome.js";
import { SessionFold } from "../../server/src/journal/fold-session.js";
import type { CallRow, Entry } from "../../server/src/journal/port.js";
import type { MemoryFile } from "../support/memory-journal.js";
import type { DecidedCall, LifeView } from "./life-view.js";
import type { Reached, Window } from "./reached.js";
import type { Trace } from "./trace.js";
import { type Ask, keyOf, type Truth } from "./truth.js";

export interface Violation {
  readonly what: string;
  /** Words that the lines of the trace about it have. */
  readonly about: readonly string[];
}

/** What somebody was told, and must find in the journal for ever. */
export type Told =
  | {
      readonly type: "ending";
      readonly sessionId: string;
      readonly callId: string;
      readonly callSequence: number;
      readonly endSequence: number;
      readonly outcome: Outcome;
    }
  | { readonly type: "emit"; readonly key: string; readonly emitId: string; readonly sequence: number }
  | { readonly type: "report"; readonly key: string; readonly standing: Outcome | undefined; readonly late: boolean }
  | { readonly type: "cancel"; readonly sessionId: string; readonly callSequence: number }
  | { readonly type: "session ended"; readonly sessionId: string };

export interface OraclePorts {
  readonly now: () => number;
  readonly trace: Trace;
  readonly truth: Truth;
  readonly file: MemoryFile;
  readonly reached: Reached;
  readonly heartbeatMs: number;
  readonly hostWaitMs: number;
  /** Whether the journal took no appends at some moment between the two. */
  readonly wasInTrouble: (from: number, to: number) => boolean;
  readonly soon: (run: () => void) => void;
}

export class Oracle {
  readonly #ports: OraclePorts;
  readonly #folds = new Map<string, SessionFold>();
  readonly #refusedEndings = new Set<string>();
  readonly #recordedAt = new Map<string, number>();
  readonly violations: Violation[] = [];
  readonly told: Told[] = [];

  constructor(ports: OraclePorts) {
    this.#ports = ports;
    ports.file.onCommit = (sessionId, records) => this.#committed(sessionId, records);
  }

  fail(what: string, about: readonly string[] = []): void {
    this.violations.push({ what, about });
    this.#ports.trace.note(`VIOLATION ${what}`);
  }

  failCall(key: string, what: string): void {
    const slash = key.lastIndexOf("/");
    const sessionId = key.slice(0, slash);
    const callSequence = Number(key.slice(slash + 1));
    const name = this.#ports.trace.name(sessionId, callSequence);
    const row = this.#ports.file.call(sessionId, { callSequence });
    const holder = row?.started.receiver?.instanceId;
    this.fail(`call ${name}: ${what}`, [
      name,
      ...(row === undefined ? [] : [row.started.callId]),
      ...(holder === undefined ? [] : [holder]),
    ]);
  }

  // -- what the server asks of its journal ---------------------------------------------------------------------

  /** Entries that a decision appends, not durable yet. */
  decided(life: LifeView, sessionId: string, next: number, entries: readonly Entry[]): void {
    for (const [index, entry] of entries.entries()) {
      if (entry.case === "toolCallStarted") this.#decidedStart(life, sessionId, next + index, entry.value);
      if (entry.case === "toolCallEnded" && entry.value.outcome !== undefined) {
        this.#decidedEnding(life, keyOf({ sessionId, callSequence: entry.value.callSequence }), entry.value.outcome);
      }
    }
  }

  #decidedStart(life: LifeView, sessionId: string, callSequence: number, started: Parameters<LifeView["opened"]>[1]): void {
    const { receiver } = started;
    if (receiver === undefined) return;
    const key = keyOf({ sessionId, callSequence });
    const inUse = life.namedBy(receiver.instanceId).size + 1;
    life.opened(key, started);
    const arrivedAt = this.#ports.truth.ask(sessionId, started.callId)?.lastArrivalMs;
    if (arrivedAt !== undefined && this.#ports.now() - arrivedAt > JUDGED_MS)
      this.#ports.reached.reach("call granted a slot after waiting");
    // An attach wakes who waits before its answer can be seen: looked at when that has been.
    this.#ports.soon(() => {
      const slots = life.slots.get(`${receiver.instanceId} ${receiver.generation}`);
      if (slots === undefined && life.unnumbered.has(receiver.instanceId)) return;
      if (slots === undefined)
        this.failCall(key, `names generation ${receiver.generation} of ${receiver.instanceId}, which never attached`);
      else if (inUse > slots) this.failCall(key, `takes slot ${inUse} of ${receiver.instanceId}, which has ${slots}`);
      else if (inUse === slots) this.#ports.reached.reach("slots of an instance all in use");
    });
  }

  #decidedEnding(life: LifeView, key: string, outcome: Outcome): void {
    const now = this.#ports.now();
    life.pendingEndings.set(key, (life.pendingEndings.get(key) ?? 0) + 1);
    const call = life.closed(key);
    if (call === undefined) return;
    const { case: status } = outcome.status;
    const code = codeOf(outcome);
    // An ending the journal refused is posted again: it was judged when it was first decided.
    if (life.refusedEndings.has(key)) return;
    this.#noteDecided(life, key, call, status ?? "", code);
    if (status === "unknown" && code === "host_instance_lost") {
      const living = life.holders(call, true).filter((holder) => life.earliestGone(holder) > now + ROUNDING_MS);
      if (living.length > 0) this.failCall(key, `ends unknown although ${living.join(", ")} holds it and was heard within the grace`);
      return;
    }
    const lostAt = Math.max(...life.holders(call, false).map((holder) => life.latestGone(holder)));
    const slackMs = 2 * this.#ports.heartbeatMs + 1;
    const excusedMs = life.stalledBetween(lostAt - life.graceMs, now);
    if (now > lostAt + slackMs + 2 * excusedMs) {
      this.failCall(key, `ends ${status} ${code} although its last holder is gone since ${Math.round(lostAt)} ms`);
    }
    const ask = this.#ports.truth.ask(sessionOf(key), call.callId);
    if (ask?.lastArrivalMs === undefined) return;
    this.#checkSent(life, key, call, status);
    const dueAt = Math.max(ask.lastArrivalMs + ask.timeoutMs, life.listeningAt);
    const latenessMs = DEADLINE_SLACK_MS + life.stalledBetween(dueAt, now);
    // What ends a call waits for the journal; so does the decision to take it up again after a restart.
    if (now > dueAt + latenessMs && !this.#ports.wasInTrouble(dueAt, now)) {
      this.failCall(key, `ends ${status} ${code} although its deadline passed at ${Math.round(dueAt)} ms`);
    }
  }

  /** What was started and could be written must have been, long before its deadline. */
  #checkSent(life: LifeView, key: string, call: DecidedCall, status: string | undefined): void {
    const { truth, file } = this.#ports;
    const recordedAt = this.#recordedAt.get(key);
    if (status !== "timeout" || recordedAt === undefined || life.reopened.has(key) || !file.open.has(key)) return;
    const { instanceId, generation } = call.receiver;
    const writable = life.streams.get(instanceId);
    const now = this.#ports.now();
    if (truth.deed(key).written > 0 || writable?.generation !== generation || writable.blockedAt() > recordedAt) return;
    if (now - recordedAt > 1000 + life.stalledBetween(recordedAt, now)) {
      this.failCall(key, "runs into its deadline although its command could be written, and never was");
    }
  }

  #noteDecided(life: LifeView, key: string, call: DecidedCall, status: string, code: string): void {
    const { truth, reached } = this.#ports;
    const now = this.#ports.now();
    const ask = truth.ask(sessionOf(key), call.callId);
    if (code === "command_not_delivered") {
      if (truth.deed(key).written > 0) reached.reach("attach that ends undelivered calls");
      else if (!life.reopened.has(key)) reached.reach("command never written when its stream closed");
      if (life.reopened.has(key)) reached.reach("attach after a restart that ends undelivered calls");
    }
    if (status === "timeout" && ask?.lastArrivalMs !== undefined && ask.lastArrivalMs + ask.timeoutMs < life.startedAt) {
      reached.reach("deadline that passed while the server was down");
    }
    if (status === "unknown" && !life.hasDetached(call.receiver.instanceId)) reached.reach("instance gone by its grace");
    if (status !== "unknown" && life.latestGone(call.receiver.instanceId) < now) {
      reached.reach("call whose first holder is gone and that goes on with a successor");
    }
    if (life.reopened.has(key) && (status === "ok" || truth.deed(key).reported.some((reported) => codeOf(reported) === code))) {
      reached.reach("reopened call that ends with its true outcome");
    }
  }

  /** The journal refused the append: its decisions are undone. */
  refused(life: LifeView, sessionId: string, next: number, entries: readonly Entry[]): void {
    for (const [index, entry] of entries.entries()) {
      if (entry.case === "toolCallStarted") life.closed(keyOf({ sessionId, callSequence: next + index }));
      if (entry.case !== "toolCallEnded") continue;
      const row = this.#ports.file.call(sessionId, { callSequence: entry.value.callSequence });
      if (row === undefined) continue;
      const key = keyOf(row);
      life.refusedEndings.add(key);
      life.pendingEndings.set(key, (life.pendingEndings.get(key) ?? 1) - 1);
      this.#refusedEndings.add(key);
      this.#ports.reached.reach("append of an ending refused");
      // The server undoes it in this turn of the loop; what is counted here must not be ahead of it.
      this.#ports.soon(() => {
        const isOpen = this.#ports.file.open.has(key) && life.pendingEndings.get(key) === 0;
        if (isOpen && !life.open.has(key)) life.opened(key, row.started);
      });
    }
  }

  // -- what is durable -------------------------------------------------------------------------------------------

  #committed(sessionId: string, records: readonly JournalRecord[]): void {
    let fold = this.#folds.get(sessionId);
    if (fold === undefined) {
      fold = new SessionFold(sessionId);
      this.#folds.set(sessionId, fold);
    }
    for (const { sequence, entry } of records) {
      if (entry.case === undefined) continue;
      fold.add(sequence, entry);
      // Its id is random; its request_id is not.
      if (entry.case === "sessionCreated") this.#ports.trace.rename(sessionId, entry.value.requestId);
      this.#ports.trace.note(`journal ${this.#ports.trace.name(sessionId)} ${sequence} ${entry.case}${this.#describe(sessionId, entry)}`);
      if (entry.case === "toolCallStarted") this.#recordedAt.set(keyOf({ sessionId, callSequence: sequence }), this.#ports.now());
      if (entry.case === "toolCallEnded")
        this.#recordedAt.set(`${keyOf({ sessionId, callSequence: entry.value.callSequence })} ended`, this.#ports.now());
      if (entry.case === "toolCallEnded") this.#checkEnding(sessionId, entry.value.callSequence);
      if (entry.case === "toolCallLateOutcome" && entry.value.outcome !== undefined) this.#noteCode(entry.value.outcome);
    }
    for (const problem of fold.problems.splice(0)) this.fail(`${problem.law}: ${problem.message}`, [this.#ports.trace.name(sessionId)]);
  }

  #describe(sessionId: string, entry: Entry): string {
    const call = (callSequence: number): string => ` ${this.#ports.trace.name(sessionId, callSequence)} `;
    switch (entry.case) {
      case "toolCallStarted":
        return ` ${entry.value.callId} ${entry.value.receiver?.instanceId ?? "-"} ${entry.value.receiver?.generation ?? ""}`;
      case "toolCallEnded":
      case "toolCallLateOutcome":
        return `${call(entry.value.callSequence)}${entry.value.outcome === undefined ? "" : `${entry.value.outcome.status.case} ${codeOf(entry.value.outcome)}`}`;
      case "toolCallCancelRequested":
        return call(entry.value.callSequence);
      case "eventEmitted":
        return entry.value.origin.case === "callSequence" ? `${call(entry.value.origin.value)}${entry.value.emitId}` : "";
      default:
        return "";
    }
  }

  #checkEnding(sessionId: string, callSequence: number): void {
    const row = this.#ports.file.call(sessionId, { callSequence });
    const outcome = row?.ended?.outcome;
    if (row === undefined || outcome?.status.case === undefined) return;
    const key = keyOf(row);
    const code = codeOf(outcome);
    this.#ports.reached.reach(`ending ${outcome.status.case}`);
    this.#noteCode(outcome);
    this.#noteEnding(row, outcome);
    const ask = this.#ports.truth.ask(sessionId, row.started.callId);
    if (ask === undefined) {
      this.failCall(key, `has call_id ${row.started.callId}, which nobody asked for`);
      return;
    }
    const wrong = this.#untrue(row, ask, outcome);
    if (wrong !== undefined) this.failCall(key, `ends ${outcome.status.case} ${code}, but ${wrong}`);
  }

  #noteCode(outcome: Outcome): void {
    const code = codeOf(outcome);
    if (code !== "" && code !== "own_failure") this.#ports.reached.reach(`code ${code}` as Window);
  }

  #noteEnding(row: CallRow, outcome: Outcome): void {
    const { reached } = this.#ports;
    const waited = row.started.receiver === undefined;
    if (codeOf(outcome) === "session_ended") reached.reach(waited ? "session ended while a call waits" : "session ended while a call runs");
    if (codeOf(outcome) === "deadline_passed" && waited) reached.reach("deadline while the call waits");
    if (codeOf(outcome) === "cancel_requested" && !waited) reached.reach("cancel while the call runs");
    if (codeOf(outcome) === "cancel_requested" && waited) {
      const arrivedAt = this.#ports.truth.ask(row.sessionId, row.started.callId)?.lastArrivalMs ?? 0;
      const isJudged = this.#ports.now() - arrivedAt > JUDGED_MS;
      reached.reach(isJudged ? "cancel while the call waits" : "cancel while the call is looked up or judged");
    }
    if (this.#refusedEndings.has(keyOf(row))) reached.reach("ending held until the journal took it");
  }

  /** Why this cannot be how the call really ended. */
  #untrue(row: CallRow, ask: Ask, outcome: Outcome): string | undefined {
    const { truth } = this.#ports;
    const key = keyOf(row);
    const deed = truth.deed(key);
    if (deed.reported.some((reported) => sameOutcome(reported, outcome))) return undefined;
    const sent = row.started.receiver !== undefined;
    const sinceMs = ask.firstArrivalMs === undefined ? -1 : this.#ports.now() - ask.firstArrivalMs;
    switch (`${outcome.status.case} ${codeOf(outcome)}`) {
      case "timeout deadline_passed":
        // The deadline is in whole milliseconds of the wall clock where it crosses a restart.
        return sinceMs > ask.timeoutMs - 1 ? undefined : `only ${sinceMs} ms of ${ask.timeoutMs} ms had passed`;
      case "cancelled cancel_requested":
        return ask.cancelAsked ? undefined : "nobody asked for that";
      case "cancelled session_ended":
        return truth.sessionEndsAsked.has(row.sessionId) ? undefined : "nobody ended its session";
      case "unknown host_instance_lost":
        return sent ? undefined : "nobody held it";
      case "error command_not_delivered":
        if (deed.read > 0 || deed.runs > 0) return "its command was delivered";
        return sent ? undefined : "nothing was to be delivered";
      case "error host_unavailable":
        if (sent) return "it had a receiver";
        return sinceMs >= this.#ports.hostWaitMs ? undefined : `it had waited ${sinceMs} ms only`;
      case "error host_overloaded":
        return sent ? "it had a receiver" : undefined;
      case "error invalid_input":
      case "error placement_not_found":
      case "error schema_too_costly":
        if (sent) return "it was sent";
        return ask.inputJson === '{"n":1}' && ask.name !== "nowhere" ? "there was nothing wrong with it" : undefined;
      case "error invalid_output":
        return deed.reported.some((reported) => reported.status.case === "ok" && reported.status.value.valueJson.includes('"wrong"'))
          ? undefined
          : "its output was valid";
      default:
        return "no process said so";
    }
  }

  // -- commands ------------------------------------------------------------------------------------------------

  /** The server hands a RunTool to a stream. */
  wrote(life: LifeView, key: string, at: { instanceId: string; generation: number }, row: CallRow | undefined): void {
    const deed = this.#ports.truth.deed(key);
    deed.written++;
    if (deed.written > 1) this.failCall(key, `is sent for the ${deed.written}nd time (L1)`);
    if (row === undefined) {
      this.failCall(key, "is sent although its start is not durable (L2)");
      return;
    }
    const endedAt = this.#recordedAt.get(`${key} ended`) ?? Number.POSITIVE_INFINITY;
    const now = this.#ports.now();
    if (now - endedAt > UNHEARD_MS + life.stalledBetween(endedAt, now)) this.failCall(key, "is sent after its ending");
    const { receiver } = row.started;
    if (receiver?.instanceId !== at.instanceId || receiver.generation !== at.generation) {
      this.failCall(
        key,
        `is sent to ${at.instanceId} of generation ${at.generation}; its record names ${receiver?.instanceId} of ${receiver?.generation}`,
      );
    }
  }

  /** A process takes a RunTool from its stream. */
  read(key: string, instanceId: string): void {
    const deed = this.#ports.truth.deed(key);
    deed.read++;
    if (deed.read > 1) this.failCall(key, `is delivered twice, now to ${instanceId}`);
    if (this.#endedAsUndelivered(key)) this.failCall(key, `reaches ${instanceId} after it was ended as not delivered`);
  }

  ran(key: string, instanceId: string): void {
    const deed = this.#ports.truth.deed(key);
    deed.runs++;
    if (deed.runs > 1) this.failCall(key, `runs for the ${deed.runs}nd time, now at ${instanceId}`);
    if (this.#endedAsUndelivered(key)) this.failCall(key, `runs at ${instanceId} after it was ended as not delivered`);
  }

  #endedAsUndelivered(key: string): boolean {
    const outcome = this.rowOf(key)?.ended?.outcome;
    return outcome !== undefined && codeOf(outcome) === "command_not_delivered";
  }

  rowOf(key: string): CallRow | undefined {
    const slash = key.lastIndexOf("/");
    return this.#ports.file.call(key.slice(0, slash), { callSequence: Number(key.slice(slash + 1)) });
  }

  // -- what is told ----------------------------------------------------------------------------------------------

  toldEnding(ask: Ask, ending: { callSequence: number; endSequence: number; outcome: Outcome }): void {
    const row = this.#ports.file.call(ask.sessionId, { callId: ask.callId });
    const key = keyOf({ sessionId: ask.sessionId, callSequence: ending.callSequence });
    if (row?.ended?.outcome === undefined) {
      this.failCall(key, `its caller is told ${codeOf(ending.outcome)}, which is not durable (L6)`);
      return;
    }
    if (
      row.callSequence !== ending.callSequence ||
      row.endSequence !== ending.endSequence ||
      !sameOutcome(row.ended.outcome, ending.outcome)
    ) {
      this.failCall(
        key,
        `its caller is told ${codeOf(ending.outcome)} at ${ending.endSequence}; the journal has ${codeOf(row.ended.outcome)} at ${row.endSequence}`,
      );
    }
    if (ask.toldEnding !== undefined && ask.toldEnding !== ending.endSequence) this.failCall(key, "two callers are told different endings");
    ask.toldEnding = ending.endSequence;
    const { callSequence, endSequence, outcome } = ending;
    this.told.push({ type: "ending", sessionId: ask.sessionId, callId: ask.callId, callSequence, endSequence, outcome });
  }

  toldEmit(key: string, emitId: string, sequence: number): void {
    this.told.push({ type: "emit", key, emitId, sequence });
    const row = this.rowOf(key);
    const recorded = row === undefined ? undefined : this.#ports.file.emit(row.sessionId, row.callSequence, emitId);
    if (recorded !== sequence) this.failCall(key, `emit ${emitId} is answered ${sequence}; the journal has it at ${recorded}`);
    if (row?.endSequence !== undefined && sequence > row.endSequence)
      this.failCall(key, `emit ${emitId} at ${sequence} is above the ending (L6)`);
  }

  toldReport(key: string, reported: Outcome, disposition: "RECORDED" | "DUPLICATE" | "LATE", standing: Outcome | undefined): void {
    this.told.push({ type: "report", key, standing, late: disposition === "LATE" });
    const row = this.rowOf(key);
    const ending = row?.ended?.outcome;
    if (row === undefined || ending === undefined) {
      this.failCall(key, `a report is answered ${disposition}; no ending is durable`);
      return;
    }
    if (standing === undefined || !sameOutcome(standing, ending))
      this.failCall(key, "a report is told an ending that is not the journal's");
    const judged = codeOf(ending) === "invalid_output" ? ending : reported;
    if (disposition !== "LATE" && !sameOutcome(judged, ending))
      this.failCall(key, `a report is answered ${disposition}; another ending stands`);
    if (disposition === "LATE" && row.late === undefined) this.failCall(key, "a report is answered LATE; no late outcome is durable");
  }

  /** The server said that these calls of a list have ended, or never were this host's. */
  toldEnded(hostId: string, ended: readonly { sessionId: string; callSequence: number }[]): void {
    for (const { sessionId, callSequence } of ended) {
      const row = this.#ports.file.call(sessionId, { callSequence });
      if (row?.started.receiver?.hostId !== hostId) continue;
      if (row.endSequence === undefined) this.failCall(keyOf(row), "its host is told that it has ended; no ending is durable");
    }
  }

  /** A report or an emit of a call's own host was refused as if there were no such call. */
  toldNotFound(key: string, hostId: string): void {
    if (this.rowOf(key)?.started.receiver?.hostId === hostId) this.failCall(key, "its own host is told that there is no such call");
  }

  toldCancelled(ask: Ask, callSequence: number): void {
    this.told.push({ type: "cancel", sessionId: ask.sessionId, callSequence });
    const row = this.#ports.file.call(ask.sessionId, { callId: ask.callId });
    const key = keyOf({ sessionId: ask.sessionId, callSequence });
    if (row?.endSequence === undefined) this.failCall(key, "a cancel is answered; no ending is durable");
    else if (row.callSequence !== callSequence) this.failCall(key, `a cancel of ${ask.callId} is answered with another call's sequence`);
  }

  toldSessionEnded(sessionId: string): void {
    this.told.push({ type: "session ended", sessionId });
    const session = this.#ports.file.session(sessionId);
    if (session?.ended !== true || session.openToolCalls > 0) {
      this.fail(`the end of session ${this.#ports.trace.name(sessionId)} is answered; it is not durable, or calls are open`);
    }
  }

  // -- at the end --------------------------------------------------------------------------------------------------

  /** Everything has come to rest. */
  finish(): void {
    const { file, truth } = this.#ports;
    for (const row of file.open.values()) this.failCall(keyOf(row), "never ends");
    for (const fold of this.#folds.values()) {
      fold.finish();
      for (const problem of fold.problems.splice(0)) this.fail(`${problem.law}: ${problem.message}`);
    }
    for (const ask of truth.asks.values()) {
      const row = file.call(ask.sessionId, { callId: ask.callId });
      if (ask.over === undefined) this.fail(`the caller of ${ask.callId} waits for ever`, [ask.callId]);
      if (ask.over === "refused" && row !== undefined) this.failCall(keyOf(row), "its caller was refused for good, and it is recorded");
    }
    for (const [key, deed] of truth.deeds) this.#checkDeed(key, deed);
  }

  #checkDeed(key: string, deed: ReturnType<Truth["deed"]>): void {
    const row = this.rowOf(key);
    if (row === undefined) {
      if (deed.written + deed.read + deed.runs > 0) this.failCall(key, "was acted on, and is not in the journal");
      return;
    }
    for (const [emitId, sequence] of deed.emits) {
      const recorded = this.#ports.file.emit(row.sessionId, row.callSequence, emitId);
      if (sequence === "refused" ? recorded !== undefined : recorded !== sequence) {
        this.failCall(key, `emit ${emitId} was answered ${sequence}; the journal has it at ${recorded}`);
      }
    }
  }
}

/** Looking a call up, judging its input and recording that takes no longer; who waits longer waits for a slot. */
const JUDGED_MS = 100;
/** From a commit until the server hears of it. */
const UNHEARD_MS = 5;
/** Sums of times differ by less. */
const ROUNDING_MS = 0.001;
/** What recording the start may take. */
const DEADLINE_SLACK_MS = 1000;

function sessionOf(key: string): string {
  return key.slice(0, key.lastIndexOf("/"));
}

export function codeOf(outcome: Outcome): string {
  return outcome.status.case === "ok" || outcome.status.case === undefined ? "" : outcome.status.value.code;
}
