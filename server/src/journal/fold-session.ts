import type { Entry } from "./port.js";

/** Something in a journal that breaks a law of it. */
export interface Problem {
  /** The law of the call machine that is broken, or `file` when the database itself is unsound. */
  readonly law: "L3" | "L5" | "L6" | "L7" | "file";
  readonly sessionId?: string;
  readonly sequence?: number;
  readonly message: string;
}

/** A call as its records tell it. */
export interface FoldedCall {
  readonly callId: string;
  endSequence: number | null;
  lateSequence: number | null;
  /** Sequence by emit_id. */
  readonly emits: Map<string, number>;
}

/** What the records of one session add up to, and what is wrong with them. */
export class SessionFold {
  readonly sessionId: string;
  readonly problems: Problem[] = [];
  readonly calls = new Map<number, FoldedCall>();
  readonly #callIds = new Set<string>();
  lastSequence = 0;
  endSequence: number | null = null;
  created: Extract<Entry, { case: "sessionCreated" }>["value"] | undefined;

  constructor(sessionId: string) {
    this.sessionId = sessionId;
  }

  /** The next record. An entry of a newer Brain (`undefined`) only counts. */
  add(sequence: number, entry: Entry | undefined): void {
    const expected = this.lastSequence + 1;
    if (sequence !== expected) this.#report("L7", sequence, `is where sequence ${expected} belongs`);
    this.lastSequence = sequence;
    if ((sequence === 1) !== (entry?.case === "sessionCreated")) {
      this.#report("L7", sequence, "breaks that session_created is the first record and no other");
    }
    const endings = entry?.case === "toolCallEnded" || entry?.case === "toolCallLateOutcome";
    if (this.endSequence !== null && entry !== undefined && !endings) {
      this.#report("L3", sequence, `comes after session_ended at ${this.endSequence}, where only endings may`);
    }
    if (entry !== undefined) this.#fold(sequence, entry);
  }

  /** After the last record. */
  finish(): void {
    if (this.endSequence === null) return;
    for (const [callSequence, call] of this.calls) {
      if (call.endSequence === null) this.#report("L3", callSequence, "starts a call that its session's end did not end");
    }
  }

  #fold(sequence: number, entry: Entry): void {
    switch (entry.case) {
      case "sessionCreated":
        this.created = entry.value;
        return;
      case "sessionEnded":
        this.endSequence ??= sequence;
        return;
      case "toolCallStarted": {
        const { callId } = entry.value;
        if (this.#callIds.has(callId)) this.#report("L3", sequence, `starts a second call with call_id "${callId}"`);
        this.#callIds.add(callId);
        this.calls.set(sequence, { callId, endSequence: null, lateSequence: null, emits: new Map() });
        return;
      }
      case "eventEmitted": {
        if (entry.value.origin.case !== "callSequence") return;
        const call = this.#call(sequence, entry.value.origin.value);
        if (call === undefined) return;
        const { emitId } = entry.value;
        if (call.endSequence !== null) {
          this.#report("L6", sequence, `is an event of call ${entry.value.origin.value}, which ended at ${call.endSequence}`);
        }
        if (emitId === "") return;
        if (call.emits.has(emitId)) this.#report("L5", sequence, `repeats emit_id "${emitId}" of its call`);
        else call.emits.set(emitId, sequence);
        return;
      }
      case "toolCallCancelRequested": {
        const call = this.#call(sequence, entry.value.callSequence);
        if (call !== undefined && call.endSequence !== null) {
          this.#report("L3", sequence, `cancels call ${entry.value.callSequence}, which ended at ${call.endSequence}`);
        }
        return;
      }
      case "toolCallEnded": {
        const call = this.#call(sequence, entry.value.callSequence);
        if (call === undefined) return;
        if (call.endSequence === null) call.endSequence = sequence;
        else this.#report("L3", sequence, `is a second ending of call ${entry.value.callSequence}`);
        return;
      }
      case "toolCallLateOutcome": {
        const call = this.#call(sequence, entry.value.callSequence);
        if (call === undefined) return;
        if (call.endSequence === null) {
          this.#report("L3", sequence, `is a late outcome of call ${entry.value.callSequence}, which has no ending`);
        }
        if (call.lateSequence === null) call.lateSequence = sequence;
        else this.#report("L3", sequence, `is a second late outcome of call ${entry.value.callSequence}`);
        return;
      }
      default:
        entry satisfies never;
    }
  }

  #call(sequence: number, callSequence: number): FoldedCall | undefined {
    const call = this.calls.get(callSequence);
    if (call === undefined) this.#report("L3", sequence, `names call ${callSequence}, which was never started`);
    return call;
  }

  #report(law: Problem["law"], sequence: number, what: string): void {
    this.problems.push({
      law,
      sessionId: this.sessionId,
      sequence,
      message: `session ${this.sessionId}: record ${sequence} ${what}`,
    });
  }
}
