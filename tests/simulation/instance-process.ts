/**
 * A correct host, by the rules in `host_service.proto`: one process, attached as an instance.
 *
 * 1. Each attempt to attach has the next generation. The old stream is dropped and nothing more is taken from it; then
 *    the list is made and the attach is written, in one step (rules 2 and 3).
 * 2. A call is on the list from the moment its RunTool is read until its report is answered for good (rules 3 and 7).
 * 3. A command is run once, not after its time, and no lost stream stops it (rule 5).
 * 4. Emits are repeated until they are answered, before the outcome is reported (rules 6 and 7).
 * 5. When it leaves it takes nothing any more; its list is made and Detach is written in one step (rule 9).
 */
import {
  type AttachRequest,
  type AttachResponse,
  type CallReference,
  CallReferenceSchema,
  CancelCause,
  DetachRequestSchema,
  Disposition,
  EmitEventRequestSchema,
  HeartbeatRequestSchema,
  type HeldCalls,
  HeldCallsSchema,
  HostAttachmentSchema,
  type Outcome,
  ReportOutcomeRequestSchema,
  type RunTool,
  type ServedTool,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { sameOutcome } from "../../server/src/core/outcome.js";
import { noteRequest } from "./accepted.js";
import { Connection, type FromServer, type Reader } from "./connection.js";
import { drawPlan, failedOutcome, type Plan, stoppedOutcome } from "./function-run.js";
import { type Ground, latency } from "./ground.js";
import { type Heard, request } from "./requests.js";
import type { BrainLife } from "./server.js";
import { keyOf } from "./truth.js";
import { askUnary } from "./unary.js";

export interface ProcessSpec {
  readonly hostId: string;
  readonly instanceId: string;
  readonly route: "attach" | "watch";
  readonly keepsList: boolean;
  /** Numbers no attach, and leaves that to the server. */
  readonly isNumbered: boolean;
  readonly hasOutbox: boolean;
  readonly slots: number;
  /** Empty: it says that it serves everything. */
  readonly served: readonly ServedTool[];
  /** The functions it really has, as "environment/name". */
  readonly functions: ReadonlySet<string>;
  /** What its predecessor left in the file. */
  readonly inherited: ReadonlyMap<string, OutboxEntry>;
}

export interface OutboxEntry {
  readonly reference: CallReference;
  readonly outcome: Outcome;
}

interface HeldCall {
  readonly key: string;
  readonly reference: CallReference;
  readonly inherited: boolean;
  phase: "read" | "running" | "finished";
  stopped: CancelCause | undefined;
  /** Ends what it is doing, where that can be ended. */
  stop: () => void;
}

type Answer = AttachResponse["message"];

const FOR_GOOD: ReadonlySet<string> = new Set([
  "call_ended",
  "call_not_found",
  "invalid_argument",
  "permission_denied",
  "request_too_large",
]);

export class InstanceProcess implements Reader {
  readonly spec: ProcessSpec;
  readonly #ground: Ground;
  readonly #held = new Map<string, HeldCall>();
  /** What a crash of the process leaves. */
  readonly outbox = new Map<string, OutboxEntry>();
  readonly #pending = new Map<number, (heard: Heard<Answer>) => void>();
  #waiters: (() => void)[] = [];
  #connection: Connection | undefined;
  #generation = 0;
  #isUp = false;
  #lastHeard = 0;
  #attempts = 0;
  #disarmBeat: () => void = () => undefined;
  #disarmFirst: () => void = () => undefined;
  /** It runs. */
  lives = true;
  #isLeaving = false;
  frozenUntil = 0;

  constructor(ground: Ground, spec: ProcessSpec) {
    this.#ground = ground;
    this.spec = spec;
    for (const [key, entry] of spec.inherited) {
      this.outbox.set(key, entry);
      const held: HeldCall = {
        key,
        reference: entry.reference,
        inherited: true,
        phase: "finished",
        stopped: undefined,
        stop: () => undefined,
      };
      this.#held.set(key, held);
    }
    this.#attach();
    for (const [key, entry] of spec.inherited) {
      const held = this.#held.get(key);
      if (held !== undefined) this.#report(held, entry.outcome, 1);
    }
  }

  get hostId(): string {
    return this.spec.hostId;
  }

  get instanceId(): string {
    return this.spec.instanceId;
  }

  get keepsList(): boolean {
    return this.spec.keepsList;
  }

  get heldCalls(): number {
    return this.#held.size;
  }

  get connection(): Connection | undefined {
    return this.#connection;
  }

  // -- life --------------------------------------------------------------------------------------------------------

  /** Dies at once. Its machine may say so for it, or nothing is heard any more. */
  die(machineToo: boolean): void {
    this.#ground.trace.note(`${this.instanceId} dies`);
    if (this.#held.size > 0) this.#ground.reached.reach("instance died with a call");
    this.#vanish(machineToo);
  }

  #vanish(silently: boolean): void {
    this.lives = false;
    this.#disarmBeat();
    this.#disarmFirst();
    if (silently) this.#connection?.cut(false, false);
    this.#connection?.drop();
    this.#connection = undefined;
  }

  /** Finishes what it can within `drainMs`, and leaves for good. */
  leave(drainMs: number): void {
    const { schedule } = this.#ground;
    const until = schedule.now + drainMs;
    const look = (): void => {
      if (!this.lives) return;
      if (this.#held.size > 0 && schedule.now < until) schedule.after(50, look);
      else this.#detach();
    };
    look();
  }

  #detach(): void {
    const { trace, schedule, reached } = this.#ground;
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    for (const held of this.#held.values()) held.stop();
    const heldCalls = this.#list();
    trace.note(`${this.instanceId} detaches holding ${heldCalls?.calls.length ?? "no list"}`);
    reached.reach(heldCalls === undefined ? "instance detached without a list" : "instance detached with its list");
    if (heldCalls !== undefined && heldCalls.calls.length > 0) reached.reach("instance detached with calls on its list");
    const generation = this.spec.isNumbered ? this.#generation : 0;
    const value = create(DetachRequestSchema, { hostId: this.hostId, instanceId: this.instanceId, generation });
    if (heldCalls !== undefined) value.heldCalls = heldCalls;
    const gone = (): void => {
      if (this.lives) this.#vanish(false);
    };
    schedule.after(2000, gone);
    this.#ask({ case: "detach", value }, gone);
  }

  // -- attaching ---------------------------------------------------------------------------------------------------

  #attach(): void {
    const { schedule, random, weather, calm, trace } = this.#ground;
    if (!this.lives || this.#isLeaving || this.#connection !== undefined) return;
    const { spec } = this;
    this.#generation++;
    const attachment = create(HostAttachmentSchema, {
      hostId: this.hostId,
      instanceId: this.instanceId,
      generation: spec.isNumbered ? this.#generation : 0,
      maxConcurrentCalls: spec.slots,
      servedTools: [...spec.served],
    });
    const heldCalls = this.#list();
    if (heldCalls !== undefined) attachment.heldCalls = heldCalls;
    trace.note(
      `${this.instanceId} attaches as ${this.#generation} holding ${heldCalls?.calls.map((call) => trace.name(call.sessionId, call.callSequence)).join(" ") ?? "no list"}`,
    );
    const connection = new Connection(this.#ground, this, spec.route, attachment);
    this.#connection = connection;
    this.#lastHeard = schedule.now;
    const isLate = !calm && random.chance(weather.lateAttach);
    connection.open(isLate ? random.next() * 4 * weather.heartbeatMs : latency(this.#ground));
    this.#disarmFirst = schedule.after(2 * weather.heartbeatMs, () => this.#reattach());
  }

  #list(): HeldCalls | undefined {
    if (!this.spec.keepsList) return undefined;
    return create(HeldCallsSchema, { calls: [...this.#held.values()].map(({ reference }) => reference) });
  }

  /** Drops its stream and attaches again after a while. */
  #reattach(): void {
    const { schedule, random } = this.#ground;
    this.#disarmFirst();
    this.#disarmBeat();
    const connection = this.#connection;
    if (connection === undefined || !this.lives) return;
    this.#connection = undefined;
    this.#isUp = false;
    connection.drop();
    for (const heard of [...this.#pending.values()]) heard({ type: "lost" });
    this.#pending.clear();
    const span = Math.min(50 * 2 ** this.#attempts++, 1500);
    schedule.after(span * (0.5 + random.next() / 2), () => this.#attach());
  }

  #beat(): void {
    const { schedule, weather } = this.#ground;
    this.#disarmBeat = schedule.after(weather.heartbeatMs, () => {
      if (!this.lives || this.#connection === undefined) return;
      if (schedule.now - this.#lastHeard > 3 * weather.heartbeatMs) return this.#reattach();
      this.#beat();
      const value = create(HeartbeatRequestSchema, { hostId: this.hostId, instanceId: this.instanceId });
      const heldCalls = this.#list();
      if (heldCalls !== undefined) value.heldCalls = heldCalls;
      const connection = this.#connection;
      this.#ask({ case: "heartbeat", value }, (heard) => {
        if (heard.type === "answered" && heard.answer.case === "heartbeat") {
          if (heard.answer.value.ended.length > 0) this.#ground.reached.reach("heartbeat that names ended calls");
          for (const call of heard.answer.value.ended) this.#held.get(keyOf(call))?.stop();
        }
        if (heard.type === "refused" && heard.reason === "instance_not_attached" && this.#connection === connection) this.#reattach();
      });
    });
  }

  // -- commands ----------------------------------------------------------------------------------------------------

  take(connection: Connection, message: FromServer): void {
    if (!this.lives || connection !== this.#connection) return;
    this.#lastHeard = this.#ground.schedule.now;
    if (message.type === "end") {
      this.#ground.trace.note(`${this.instanceId} loses its stream ${connection.generation} ${message.reason ?? ""}`);
      this.#reattach();
      return;
    }
    if (message.type === "answer") {
      const heard = this.#pending.get(message.messageId);
      this.#pending.delete(message.messageId);
      heard?.(outcomeOfAnswer(message.message));
      return;
    }
    if (this.#isLeaving) return;
    const { kind } = message;
    switch (kind.case) {
      case "attached": {
        this.#disarmFirst();
        this.#isUp = true;
        this.#attempts = 0;
        if (kind.value.ended.length > 0) this.#ground.reached.reach("attach that names ended calls");
        for (const call of kind.value.ended) this.#held.get(keyOf(call))?.stop();
        this.#beat();
        for (const waiter of this.#waiters.splice(0)) waiter();
        return;
      }
      case "runTool":
        this.#runTool(kind.value);
        return;
      case "cancelCall": {
        const held = this.#held.get(keyOf(kind.value));
        if (held === undefined) return;
        held.stopped ??= kind.value.cause;
        held.stop();
        return;
      }
    }
  }

  #runTool(command: RunTool): void {
    const { oracle, trace, schedule, random, weather } = this.#ground;
    const { sessionId, callSequence, environment, name } = command;
    const key = keyOf(command);
    trace.note(`${this.instanceId} reads runTool ${trace.name(sessionId, callSequence)} `);
    oracle.read(key, this.instanceId);
    if (this.spec.served.length > 0 && !this.spec.served.some((tool) => tool.environment === environment && tool.name === name)) {
      oracle.failCall(key, `is sent to ${this.instanceId}, which does not serve ${name}`);
    }
    const reference = create(CallReferenceSchema, { sessionId, callSequence });
    const held: HeldCall = { key, reference, inherited: false, phase: "read", stopped: undefined, stop: () => undefined };
    held.stop = () => {
      held.stopped ??= CancelCause.CALL_ENDED;
    };
    this.#held.set(key, held);
    const remainingMs = Number(command.remaining?.seconds ?? 0n) * 1000 + (command.remaining?.nanos ?? 0) / 1e6;
    const readAt = schedule.now;
    schedule.after(random.chance(weather.slowStart) ? random.next() * 2000 : random.next() * 2, () => {
      if (!this.lives || this.#isLeaving) return;
      if (!this.spec.functions.has(`${environment}/${name}`)) {
        return this.#finish(held, failedOutcome("error", "tool_not_served", "this process holds no such function"));
      }
      if (held.stopped !== undefined) return this.#finish(held, stoppedOutcome(held.stopped));
      if (schedule.now - readAt >= remainingMs) {
        this.#ground.reached.reach("command that had expired when it was to run");
        return this.#finish(held, failedOutcome("timeout", "deadline_passed", "the time of the command was over"));
      }
      held.phase = "running";
      trace.note(`${this.instanceId} runs ${trace.name(sessionId, callSequence)} `);
      oracle.ran(key, this.instanceId);
      this.#step(held, this.#ground.planOf(command.callId) ?? drawPlan(this.#ground, command, this.instanceId), 0);
    });
  }

  #step(held: HeldCall, plan: Plan, at: number): void {
    const step = plan.steps[at];
    if (step === undefined) {
      this.#finish(held, plan.outcome, plan.clumsy);
      return;
    }
    const { schedule } = this.#ground;
    const stopNow = (): void => this.#finish(held, stoppedOutcome(held.stopped ?? CancelCause.CALL_ENDED));
    if (held.stopped !== undefined && !plan.isDeaf) {
      stopNow();
      return;
    }
    const callOff = schedule.after(step.afterMs, () => {
      held.stop = () => {
        held.stopped ??= CancelCause.CALL_ENDED;
      };
      if (!this.lives || this.#isLeaving) return;
      if (step.emitId === undefined) return this.#step(held, plan, at + 1);
      this.#emit(held, step.emitId, () => this.#step(held, plan, at + 1));
    });
    held.stop = () => {
      held.stopped ??= CancelCause.CALL_ENDED;
      if (plan.isDeaf && !this.#isLeaving) return;
      callOff();
      if (!this.#isLeaving) stopNow();
    };
  }

  // -- emitting and reporting --------------------------------------------------------------------------------------

  #emit(held: HeldCall, emitId: string, done: () => void): void {
    const { oracle, truth, reached, server } = this.#ground;
    const { sessionId, callSequence } = held.reference;
    const value = create(EmitEventRequestSchema, { sessionId, callSequence, kind: "tick", dataJson: "{}", emitId });
    const deed = truth.deed(held.key);
    let firstLife: number | undefined;
    this.#untilAnswered(
      { case: "emitEvent", value },
      (heard, attempt) => {
        if (heard.type === "answered" && heard.answer.case === "emitEvent") {
          deed.emits.set(emitId, heard.answer.value.sequence);
          if (attempt > 1) reached.reach("emit repeated after a lost answer");
          if (firstLife !== undefined && firstLife !== server.life?.number)
            reached.reach("emit answered by the life after the one that recorded it");
        } else if (heard.type === "refused") {
          deed.emits.set(emitId, "refused");
          if (heard.reason !== "call_ended") oracle.failCall(held.key, `emit ${emitId} is refused ${heard.reason}`);
        }
        done();
      },
      (life, answer) => {
        if (answer.case !== "emitEvent") return;
        oracle.toldEmit(held.key, emitId, answer.value.sequence);
        firstLife ??= life.number;
      },
    );
  }

  #finish(held: HeldCall, outcome: Outcome, clumsy = false): void {
    const { trace, random, schedule } = this.#ground;
    if (held.phase === "finished") return;
    held.phase = "finished";
    held.stop = () => undefined;
    trace.note(`${this.instanceId} finishes ${trace.name(held.reference.sessionId, held.reference.callSequence)} ${outcome.status.case}`);
    const report = (): void => this.#report(held, outcome, clumsy ? 0 : 1);
    if (!this.spec.hasOutbox) {
      report();
      return;
    }
    // The entry is on the disk before the call counts as finished.
    schedule.after(random.next() * 5, () => {
      if (!this.lives) return;
      this.outbox.set(held.key, { reference: held.reference, outcome });
      report();
    });
  }

  #report(held: HeldCall, outcome: Outcome, attempt: 0 | 1): void {
    const { oracle, truth, schedule } = this.#ground;
    const { sessionId, callSequence } = held.reference;
    const asReported = attempt === 0 ? failedOutcome("error", "", "a failure without a code") : outcome;
    if (attempt === 1) truth.deed(held.key).reported.push(outcome);
    const value = create(ReportOutcomeRequestSchema, { sessionId, callSequence, outcome: asReported });
    this.#untilAnswered(
      { case: "reportOutcome", value },
      (heard) => {
        if (heard.type === "refused" && heard.reason === "invalid_argument" && attempt === 0) return this.#report(held, outcome, 1);
        if (heard.type === "refused") oracle.failCall(held.key, `a report of ${this.instanceId} is refused ${heard.reason}`);
        if (heard.type === "answered" && heard.answer.case === "reportOutcome")
          this.#noteReported(held, outcome, heard.answer.value.disposition);
        this.#held.delete(held.key);
        // Removed from the file a moment later: a crash in between leaves it to a successor, which only repeats it.
        schedule.after(5, () => {
          if (this.lives) this.outbox.delete(held.key);
        });
      },
      (_, answer) => {
        if (answer.case !== "reportOutcome") return;
        const { disposition, standingOutcome } = answer.value;
        oracle.toldReport(held.key, outcome, Disposition[disposition] as "RECORDED", standingOutcome);
      },
    );
  }

  #noteReported(held: HeldCall, outcome: Outcome, disposition: Disposition): void {
    const { reached, oracle } = this.#ground;
    const word = Disposition[disposition] as "RECORDED" | "DUPLICATE" | "LATE";
    reached.reach(`disposition ${word}`);
    if (word === "DUPLICATE") reached.reach(held.inherited ? "duplicate report of a successor" : "duplicate report after a lost answer");
    if (held.inherited && word === "RECORDED") reached.reach("ending reported by a successor");
    if (held.inherited && word === "LATE") reached.reach("late outcome of a successor");
    const late = oracle.rowOf(held.key)?.late?.outcome;
    if (word === "LATE" && late !== undefined && !sameOutcome(late, outcome)) reached.reach("a late outcome after which another one comes");
  }

  /** Repeats until it is answered, or refused in a way that repeating cannot change. */
  #untilAnswered(
    message: AttachRequest["message"],
    done: (heard: Heard<Answer>, attempts: number) => void,
    answeredAtServer: (life: BrainLife, answer: Answer) => void,
  ): void {
    const { schedule, random } = this.#ground;
    let attempts = 0;
    const attempt = (): void => {
      if (!this.lives || this.#isLeaving) return;
      if (this.spec.route === "attach" && !this.#isUp) {
        this.#waiters.push(attempt);
        return;
      }
      attempts++;
      this.#ask(
        message,
        (heard) => {
          if (!this.lives || this.#isLeaving) return;
          if (heard.type === "answered" || (heard.type === "refused" && FOR_GOOD.has(heard.reason))) return done(heard, attempts);
          schedule.after(Math.min(20 * 2 ** attempts, 1500) * random.next(), attempt);
        },
        answeredAtServer,
      );
    };
    attempt();
  }

  /** Asks once, on its route. */
  #ask(
    message: AttachRequest["message"],
    heard: (heard: Heard<Answer>) => void,
    answered: (life: BrainLife, answer: Answer) => void = () => undefined,
  ): void {
    const { server } = this.#ground;
    const arrived = (life: BrainLife, isSure: boolean): void => noteRequest(this.#ground, life, message, isSure);
    const alive = (what: Heard<Answer>): void => {
      if (this.lives) heard(what);
    };
    if (this.spec.route === "attach" && this.#connection !== undefined) {
      const id = this.#connection.send(message, { arrived, answered });
      this.#pending.set(id, alive);
      return;
    }
    const send = (life: BrainLife): Promise<Answer> => askUnary(life, server.context(this.hostId, NEVER), message, arrived);
    request(this.#ground, { frozenUntil: this.frozenUntil, mayDouble: true, mayFail: message.case !== "heartbeat" }, send, alive, answered);
  }
}

/** Never aborted: a unary request that is given up by its sender is not taken back. */
const NEVER = new AbortController().signal;

function outcomeOfAnswer(message: Answer): Heard<Answer> {
  return message.case === "refusal" ? { type: "refused", reason: message.value.reason } : { type: "answered", answer: message };
}
