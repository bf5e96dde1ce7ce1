/**
 * This process as an instance of a host: the one connection through which Brain sends calls and is answered.
 *
 * 1. Identity: one random instance id per object, never reused; every attempt to attach has the next generation.
 * 2. The list: a call is on it from the step that reads its command until the answer to its report, nothing else
 *    removes it, and a second command for a listed call is ignored.
 * 3. To attach again, the old stream is dropped and nothing more is taken from it; then the list is made and the attach
 *    is written, in one synchronous step.
 * 4. Functions go on while the stream is down. An outcome is reported until it is answered, or refused in a way that
 *    repetition cannot change. With an outbox it is in the file before it is reported, and outcomes that an earlier
 *    process left there are on the list from the first attach.
 * 5. Waits between attempts grow and are jittered; after a refused token there is one request in 3 s.
 * 6. Leaving: nothing is taken any more, then the list is made and Detach is written, in one step. What is not on that
 *    list never runs. With outcomes left in the outbox it leaves without a word: another process may still report them
 *    within the grace.
 */
import { randomUUID } from "node:crypto";
import {
  type Attached,
  type CallReference,
  CallReferenceSchema,
  type Command,
  DetachRequestSchema,
  EmitEventRequestSchema,
  HeartbeatRequestSchema,
  type HeldCalls,
  HeldCallsSchema,
  type HostAttachment,
  HostAttachmentSchema,
  ReportOutcomeRequestSchema,
  type RunTool,
  type Outcome as WireOutcome,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { Backoff } from "./backoff.js";
import { type Clock, Happening, wait } from "./clock.js";
import { BrainError, brainErrorFrom, isTokenRefusal } from "./errors.js";
import { HostCall, stopCause } from "./host-call.js";
import { HostRequests } from "./host-requests.js";
import type { RouteChoice } from "./host-routes/choice.js";
import type { CommandStream } from "./host-routes/route.js";
import type { Outbox } from "./outbox.js";
import { type CallName, callKey, type OutboxEntry } from "./outbox-lines.js";
import { wireFailure } from "./outcome.js";
import type { ServedTools } from "./served-tools.js";
import { TokenGate } from "./token-gate.js";

/** Waiting for the first message of a stream, before its route is given up. */
const FIRST_MESSAGE_MS = 5_000;
/**
 * The attempts that share it as long as Brain has told nothing. Brain may have sent calls on a first stream that died
 * under it, and may count a grace that is shorter than the whole wait: attaching again brings those calls to an end.
 */
const UNTOLD_ATTEMPTS_MS = [1_000, FIRST_MESSAGE_MS - 1_000];
const SHORTEST_HEARTBEAT_MS = 10;
/** How long a stream must have lived for the next attempt to come quickly again. */
const RECOVERED_MS = 250;
/** Between attempts to attach to a server that is about to stop; another will take its place. */
const DRAINING_MS = 500;
/** A peer that is not heard for so many is taken for gone, and so is the connection of a request that is not answered. */
const SILENT_HEARTBEATS = 3;
/** Attempts to attach that fit into the grace, at the least. */
const WAITS_PER_GRACE = 6;
/** What a function gets after its signal was aborted because the process is leaving. */
const LAST_MOMENT_MS = 1_000;
const DETACH_MS = 2_000;
/** Outcomes of an earlier process that are reported at a time. */
const FOUND_AT_ONCE = 8;

export interface HostCredentials {
  readonly hostId: string;
  readonly hostToken: string;
}

export interface HostOptions {
  readonly hostId: string;
  readonly routes: RouteChoice;
  readonly served: ServedTools;
  readonly maxConcurrentCalls: number;
  readonly outbox: Outbox | undefined;
  readonly clock: Clock;
  readonly log: (line: string) => void;
}

interface HeldCall {
  readonly reference: CallReference;
  /** Undefined for a call that an earlier process has finished. */
  readonly running: HostCall | undefined;
}

export class HostConnection {
  readonly #options: HostOptions;
  readonly #clock: Clock;
  readonly #instanceId = randomUUID();
  readonly #held = new Map<string, HeldCall>();
  /** A stream is up, or this object closes. */
  readonly #up: Happening;
  /** A call was forgotten. */
  readonly #forgotten: Happening;
  readonly #closing = new AbortController();
  readonly #gate: TokenGate;
  readonly #requests: HostRequests;
  readonly #attaching: Promise<void>;
  #generation = 0;
  #stream: CommandStream | undefined;
  #isUp = false;
  /** The version of the served Tools that the current stream was attached with. */
  #servedVersion = -1;
  #reattachAtOnce = false;
  #isLeaving = false;
  /** Of the last attempt; infinite unless it was accepted. */
  #attachedAtMs = Number.POSITIVE_INFINITY;
  #lastHeardMs = 0;
  /** As Brain told them last. */
  #heartbeatMs = DRAINING_MS;
  #graceMs = Number.POSITIVE_INFINITY;
  /** Attempts in a row on which no first message came. */
  #silentAttaches = 0;
  #trouble: string | undefined;
  /** Calls that the last heartbeat's answer named as ended. */
  #namedEnded: ReadonlySet<string> = new Set();

  constructor(options: HostOptions) {
    this.#options = options;
    this.#clock = options.clock;
    this.#up = new Happening(options.clock);
    this.#forgotten = new Happening(options.clock);
    this.#gate = new TokenGate(options.clock);
    const { routes } = options;
    const closing = this.#closing.signal;
    this.#requests = new HostRequests({ routes, gate: this.#gate, up: this.#up, isUp: () => this.#isUp, closing });
    void this.#reportFound(options.outbox?.found ?? []);
    this.#attaching = this.#stayAttached();
  }

  /** Resolves once Brain has accepted an attach that names what is served now, or after `withinMs` without one. */
  async attached(withinMs: number): Promise<void> {
    const dueMs = this.#clock.monotonic() + withinMs;
    const { served } = this.#options;
    const version = served.version;
    if (this.#stream !== undefined && this.#servedVersion !== version) {
      this.#reattachAtOnce = true;
      this.#stream.drop();
    }
    while (!this.#isUp || this.#servedVersion < version) {
      const leftMs = dueMs - this.#clock.monotonic();
      if (leftMs <= 0 || this.#closing.signal.aborted) return;
      await this.#up.next(leftMs);
    }
  }

  /** Waits for what runs, reports it, and leaves. Takes `withinMs` for the running functions, and seconds at most beyond. */
  async close(withinMs: number): Promise<void> {
    await this.#untilNothingIsHeld(withinMs);
    for (const { running } of this.#held.values()) running?.stop("closing");
    if (this.#held.size > 0) await this.#untilNothingIsHeld(LAST_MOMENT_MS);
    const { outbox, log } = this.#options;
    const left = outbox?.savedCount ?? 0;
    if (left > 0) log(`${outcomes(left)} in the outbox, which Brain did not answer; the next process with it reports them`);
    else if (this.#generation > 0) await this.#detach();
    this.#closing.abort();
    this.#stream?.drop();
    this.#options.routes.close();
    this.#up.happened();
    await this.#attaching;
  }

  async #detach(): Promise<void> {
    this.#isLeaving = true;
    const leaving = new AbortController();
    const detached = this.#options.routes.current
      .detach(
        create(DetachRequestSchema, {
          hostId: this.#options.hostId,
          instanceId: this.#instanceId,
          generation: this.#generation,
          heldCalls: this.#heldCalls(),
        }),
      )
      .catch((thrown: unknown) => {
        const { message } = brainErrorFrom(thrown, "");
        this.#options.log(`the host could not say goodbye, and is gone once its grace is over: ${message}`);
      })
      .finally(() => leaving.abort());
    await Promise.race([detached, wait(this.#clock, DETACH_MS, leaving.signal)]);
    leaving.abort();
  }

  async #untilNothingIsHeld(withinMs: number): Promise<void> {
    const dueMs = this.#clock.monotonic() + withinMs;
    while (this.#held.size > 0) {
      const leftMs = dueMs - this.#clock.monotonic();
      if (leftMs <= 0) return;
      await this.#forgotten.next(leftMs);
    }
  }

  // --- Attaching ---------------------------------------------------------------------------------------------------

  async #stayAttached(): Promise<void> {
    const backoff = new Backoff();
    while (!this.#closing.signal.aborted) {
      const trouble = await this.#attachOnce();
      if (this.#closing.signal.aborted || this.#isLeaving) return;
      // A stream that is accepted and lost again at once is no recovery.
      if (this.#clock.monotonic() - this.#attachedAtMs > RECOVERED_MS) backoff.reset();
      const pause = this.#pauseAfter(trouble, backoff);
      if (pause > 0) await wait(this.#clock, pause, this.#closing.signal);
      for (let left = this.#gate.pass(); left > 0 && !this.#closing.signal.aborted; left = this.#gate.pass()) {
        await wait(this.#clock, left, this.#closing.signal);
      }
    }
  }

  /** Attaches, follows the stream to its end, and says what ended it; nothing when this side did, to attach anew. */
  async #attachOnce(): Promise<BrainError | undefined> {
    const { routes } = this.#options;
    let heartbeat: (() => void) | undefined;
    let silence: BrainError | undefined;
    this.#attachedAtMs = Number.POSITIVE_INFINITY;
    const stream = routes.current.open(this.#attachment());
    this.#stream = stream;
    const isTold = this.#graceMs !== Number.POSITIVE_INFINITY;
    const firstMs = isTold ? this.#firstMessageMs() : (UNTOLD_ATTEMPTS_MS[this.#silentAttaches] ?? FIRST_MESSAGE_MS);
    const disarm = this.#clock.after(firstMs, () => {
      this.#silentAttaches++;
      if (!isTold && this.#silentAttaches < UNTOLD_ATTEMPTS_MS.length) this.#reattachAtOnce = true;
      else silence = new BrainError("unavailable", `no first message came within ${(isTold ? firstMs : FIRST_MESSAGE_MS) / 1000} s`);
      stream.drop();
    });
    try {
      await stream.read((command) => {
        if (this.#isLeaving || this.#stream !== stream) return;
        this.#lastHeardMs = this.#clock.monotonic();
        if (command.kind.case === "attached") {
          disarm();
          heartbeat ??= this.#beat(command.kind.value, stream, (error) => {
            silence = error;
          });
        }
        this.#take(command);
      });
      if (silence !== undefined) return silence;
      if (this.#reattachAtOnce) return undefined;
      return new BrainError("unavailable", "Brain ended the stream");
    } catch (thrown) {
      return brainErrorFrom(thrown, "");
    } finally {
      disarm();
      heartbeat?.();
      stream.drop();
      this.#stream = undefined;
      this.#isUp = false;
    }
  }

  /** Once the heartbeat is known, silence is told by it here too: the grace may be shorter than the longest wait. */
  #firstMessageMs(): number {
    // A server that is slow to answer gets more time with every attempt.
    return Math.min(SILENT_HEARTBEATS * this.#heartbeatMs * 2 ** this.#silentAttaches, FIRST_MESSAGE_MS);
  }

  /** Invariant 3: called with no stream, and its message is queued before anything else can happen. */
  #attachment(): HostAttachment {
    const { hostId, maxConcurrentCalls, served } = this.#options;
    this.#generation++;
    this.#reattachAtOnce = false;
    this.#servedVersion = served.version;
    return create(HostAttachmentSchema, {
      hostId,
      instanceId: this.#instanceId,
      generation: this.#generation,
      heldCalls: this.#heldCalls(),
      maxConcurrentCalls,
      servedTools: served.list(),
    });
  }

  #heldCalls(): HeldCalls {
    return create(HeldCallsSchema, { calls: Array.from(this.#held.values(), ({ reference }) => reference) });
  }

  /** Says what went wrong, once for each kind of trouble, and how long to wait before the next attempt. */
  #pauseAfter(trouble: BrainError | undefined, backoff: Backoff): number {
    if (trouble === undefined) return 0;
    const { routes, log } = this.#options;
    const fallback = routes.failed(trouble);
    if (fallback !== undefined) {
      this.#silentAttaches = 0;
      log(fallback);
    }
    const isRefusedToken = isTokenRefusal(trouble) || trouble.reason === "host_not_found";
    if (this.#trouble !== trouble.reason) {
      this.#trouble = trouble.reason;
      const what = isRefusedToken ? "Brain refused this host" : "the stream of commands is down";
      log(`${what} (${trouble.reason}: ${trouble.message}); functions go on, and it is tried again`);
    }
    // Brain takes no stream any more and still takes answers; a sign of life keeps the calls that are held from being lost.
    if (trouble.reason === "server_draining") {
      void this.#sendHeartbeat(undefined, () => undefined);
      backoff.reset();
      return Math.min(DRAINING_MS, this.#heartbeatMs);
    }
    if (isRefusedToken) this.#gate.refused();
    // However often it failed: a wait that outlasts the grace would lose calls that are held here.
    return backoff.next(this.#graceMs / WAITS_PER_GRACE);
  }

  /** Beats in the interval Brain asked for, until stopped; drops a stream on which nothing is heard. */
  #beat(attached: Attached, stream: CommandStream, lost: (error: BrainError) => void): () => void {
    const told = attached.heartbeatInterval === undefined ? 0 : durationMs(attached.heartbeatInterval);
    const intervalMs = Math.max(told, SHORTEST_HEARTBEAT_MS);
    this.#heartbeatMs = intervalMs;
    this.#options.routes.current.hangUpAfter(SILENT_HEARTBEATS * intervalMs);
    if (attached.grace !== undefined) this.#graceMs = durationMs(attached.grace);
    let disarm: () => void = () => undefined;
    let isAnswered = true;
    const arm = (): void => {
      const dueMs = this.#clock.monotonic() + intervalMs;
      disarm = this.#clock.after(intervalMs, () => beat(this.#clock.monotonic() - dueMs));
    };
    const beat = (lateMs: number): void => {
      // A process that was stalled itself has read nothing, and says nothing about the other side.
      const isStalled = lateMs > intervalMs;
      if (!isStalled && this.#clock.monotonic() - this.#lastHeardMs > SILENT_HEARTBEATS * intervalMs) {
        lost(new BrainError("unavailable", `nothing was heard for ${SILENT_HEARTBEATS} heartbeats of ${intervalMs} ms`));
        stream.drop();
        return;
      }
      arm();
      if (!isAnswered) return;
      isAnswered = false;
      void this.#sendHeartbeat(stream, lost).finally(() => {
        isAnswered = true;
      });
    };
    arm();
    return () => disarm();
  }

  async #sendHeartbeat(stream: CommandStream | undefined, lost: (error: BrainError) => void): Promise<void> {
    const { hostId, routes } = this.#options;
    const heldCalls = this.#heldCalls();
    try {
      const { ended } = await routes.current.heartbeat(create(HeartbeatRequestSchema, { hostId, instanceId: this.#instanceId, heldCalls }));
      this.#stopNamedTwice(ended);
    } catch (thrown) {
      const error = brainErrorFrom(thrown, "");
      // Silence says the rest; this alone says that the stream, however alive it looks, is not known over there.
      if (error.reason !== "instance_not_attached" || this.#stream !== stream) return;
      lost(error);
      stream?.drop();
    }
  }

  // --- Commands ----------------------------------------------------------------------------------------------------

  #take({ kind }: Command): void {
    switch (kind.case) {
      case "attached":
        this.#isUp = true;
        this.#silentAttaches = 0;
        this.#gate.accepted();
        this.#attachedAtMs = this.#clock.monotonic();
        this.#options.routes.succeeded();
        if (this.#trouble !== undefined) this.#options.log("the stream of commands is up again");
        this.#trouble = undefined;
        for (const call of kind.value.ended) this.#held.get(callKey(call))?.running?.stop("call_ended");
        this.#up.happened();
        return;
      case "runTool":
        this.#runTool(kind.value);
        return;
      case "cancelCall":
        this.#held.get(callKey(kind.value))?.running?.stop(stopCause(kind.value.cause));
        return;
      default:
        // Heartbeat and Drain ask for nothing; what a later Brain may say is not for this version.
        return;
    }
  }

  /** An answer may overtake the CancelCall on the stream, which says why: only what two answers name is stopped for them. */
  #stopNamedTwice(ended: readonly CallReference[]): void {
    const named = new Set(ended.map(callKey));
    for (const key of named) if (this.#namedEnded.has(key)) this.#held.get(key)?.running?.stop("call_ended");
    this.#namedEnded = named;
  }

  #runTool(command: RunTool): void {
    const key = callKey(command);
    if (this.#held.has(key)) return;
    const { sessionId, callSequence } = command;
    const tool = this.#options.served.find(sessionId, command.environment, command.name);
    const running = new HostCall(
      command,
      tool,
      async ({ kind, dataJson, emitId }) => {
        const request = create(EmitEventRequestSchema, { sessionId, callSequence, kind, dataJson, emitId });
        const { sequence } = await this.#requests.untilAnswered((route) => route.emitEvent(request));
        return sequence;
      },
      this.#clock,
    );
    this.#hold(command, running);
    void this.#runAndReport(command, running);
  }

  #hold({ sessionId, callSequence }: CallName, running: HostCall | undefined): void {
    const reference = create(CallReferenceSchema, { sessionId, callSequence });
    this.#held.set(callKey(reference), { reference, running });
  }

  async #runAndReport(command: RunTool, running: HostCall): Promise<void> {
    const { hostId, outbox } = this.#options;
    const { sessionId, callSequence, name: tool } = command;
    const outcome = await running.run(async (known) => {
      await outbox?.save({ hostId, sessionId, callSequence, tool, outcome: known });
    });
    const { overdue } = running;
    const isLate = overdue !== undefined && outcome.status.case !== "timeout";
    await this.#reportAndForget({ sessionId, callSequence, tool }, isLate ? [overdue, outcome] : [outcome]);
  }

  /** Called before the first attach, whose list names them. */
  async #reportFound(found: readonly OutboxEntry[]): Promise<void> {
    for (const entry of found) this.#hold(entry, undefined);
    const waiting = found.values();
    const reportOneByOne = async (): Promise<void> => {
      for (const entry of waiting) await this.#reportAndForget(entry, [entry.outcome]);
    };
    await Promise.all(Array.from({ length: FOUND_AT_ONCE }, reportOneByOne));
  }

  async #reportAndForget(call: FinishedCall, outcomes: readonly WireOutcome[]): Promise<void> {
    const { outbox, log } = this.#options;
    try {
      for (const outcome of outcomes) await this.#report(call, outcome);
      outbox?.answered(call);
    } catch (thrown) {
      const error = brainErrorFrom(thrown, "");
      if (error.reason !== "closed") {
        const { sessionId, callSequence, tool } = call;
        log(`the outcome of call ${callSequence} of session ${sessionId} (Tool "${tool}") was refused: ${error.message}`);
        outbox?.answered(call);
      }
    }
    this.#held.delete(callKey(call));
    this.#forgotten.happened();
  }

  async #report({ sessionId, callSequence, tool }: FinishedCall, outcome: WireOutcome): Promise<void> {
    const request = create(ReportOutcomeRequestSchema, { sessionId, callSequence, outcome });
    try {
      await this.#requests.untilAnswered((route) => route.reportOutcome(request));
    } catch (thrown) {
      const error = brainErrorFrom(thrown, "");
      if (error.reason !== "invalid_argument" && error.reason !== "request_too_large") throw error;
      // The function has run: its call must not be left to the deadline because of how the outcome looks.
      const message = `Tool "${tool}": Brain refused the outcome: ${error.message}`.slice(0, 2_000);
      request.outcome = wireFailure("error", { code: "invalid_output", message });
      await this.#requests.untilAnswered((route) => route.reportOutcome(request));
    }
  }
}

interface FinishedCall extends CallName {
  readonly tool: string;
}

function outcomes(count: number): string {
  return count === 1 ? "1 finished outcome stays" : `${count} finished outcomes stay`;
}
