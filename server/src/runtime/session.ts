/**
 * THE driver: the one place where calls start, are sent and end.
 *
 * 1. Decisions of a session are totally ordered. Each is taken synchronously against the state that all earlier
 *    appends make, durable or not (L8), so that many calls share one flush.
 * 2. Effects follow their append, in the order of the decisions (L2); see `steps.ts`.
 * 3. A decision whose append failed has no effect at all. What would have ended a call is held and posted again
 *    when the journal takes appends; the effect itself is never repeated.
 * 4. Whoever knocks (reports, timers, cancels) posts an event; nobody else touches a call.
 */
import type { Failure, Outcome } from "@aexhq/brain-proto";
import { assert } from "../core/assert.js";
import {
  ABSENT,
  type Call,
  type CallEvent,
  type CallRequest,
  type Content,
  cancelled,
  type Decision,
  deadlinePassed,
  decide,
  type Effect,
  evolve,
  sameContent,
  sessionEnded,
} from "../core/call.js";
import type { Catalogue, Placement } from "../core/catalogue.js";
import type { Entry } from "../core/entry.js";
import { failed } from "../core/outcome.js";
import { Refusal } from "../core/refusal.js";
import type { EnvironmentPort, Environments, OpenCall, WaitingCall } from "../environments/port.js";
import type { CallRow, Journal } from "../journal/port.js";
import type { Clock } from "./clock.js";
import { sessionEndedEntry } from "./entries.js";
import {
  type Asker,
  ask,
  callNotFound,
  disarm,
  type Ending,
  everyCaller,
  join,
  type LiveCall,
  liveCall,
  type OwnedCall,
  type Ownership,
  ownedCall,
  type Reported,
  requested,
  requestOf,
  stateOf,
  stopWaiting,
} from "./live-call.js";
import { refusalOf } from "./refusing.js";
import { Steps } from "./steps.js";

export interface SessionPorts {
  readonly journal: Journal;
  readonly clock: Clock;
  readonly environments: Environments;
  /** An assertion failed: the session can no longer be trusted. */
  readonly onBug: (sessionId: string, error: unknown) => void;
  /** Calls `again` when the journal may take appends again. */
  readonly whenWritable: (again: () => void) => void;
}

/** Judges a request as far as that takes time; not asked when the call is known already. */
export type JudgeInput = (placement: Placement | undefined) => Promise<Failure | undefined>;

export class SessionDriver {
  readonly sessionId: string;
  readonly catalogue: Catalogue;
  readonly defaultTimeoutMs: number;
  readonly #ports: SessionPorts;
  readonly #steps: Steps;
  /** Calls that are on their way, waiting or running, and ended ones until their last decision is durable. */
  readonly #byId = new Map<string, LiveCall>();
  readonly #bySequence = new Map<number, LiveCall>();
  #ended: boolean;
  /** The session is being ended; settles when its end is durable, or was taken back. */
  #ending: Promise<void> | undefined;
  #stopped = false;

  constructor(
    session: { sessionId: string; catalogue: Catalogue; defaultTimeoutMs: number; next: number; ended: boolean },
    ports: SessionPorts,
  ) {
    this.sessionId = session.sessionId;
    this.catalogue = session.catalogue;
    this.defaultTimeoutMs = session.defaultTimeoutMs;
    this.#ended = session.ended;
    this.#ports = ports;
    this.#steps = new Steps(session, ports.journal, (error) => this.#bug(error));
  }

  /** Whether it may be dropped from memory. */
  get idle(): boolean {
    return this.#byId.size === 0 && this.#bySequence.size === 0 && this.#steps.idle;
  }

  /** Calls without an ending, waiting ones included. */
  get openCalls(): number {
    let open = 0;
    for (const live of this.#byId.values()) if (live.state.phase !== "ended") open++;
    return open;
  }

  // -- asking ------------------------------------------------------------------------------------------------

  /** Starts the call, joins it, or answers its recorded ending. @throws Refusal */
  async callTool(
    request: CallRequest & { readonly arrivedAt: number; readonly timeoutMs: number },
    judge: JudgeInput,
    signal?: AbortSignal,
  ): Promise<Ending> {
    if ((this.#ended || this.#ending !== undefined) && !this.#byId.has(request.callId)) await this.#refuseUnlessRecorded(request.callId);
    const known = this.#byId.get(request.callId);
    if (known === undefined) {
      const live = liveCall({ callId: request.callId, state: ABSENT, request, deadlineAt: request.arrivedAt + request.timeoutMs });
      this.#byId.set(live.callId, live);
      const ending = join(live, signal);
      void this.#arrive(live, request, judge);
      return await ending;
    }
    if (known.state.phase === "absent") {
      if (known.request !== undefined && !sameContent(known.request, request)) throw conflict(request.callId, known.request);
      return join(known, signal);
    }
    const post = (asker: Asker): void => this.#post(known, { type: "requested", request }, asker);
    if (!sameContent(known.state.started, request)) {
      // Not among the callers: an ending that is being recorded answers all of them.
      await ask(post);
      assert.fail("a request with other content is refused");
    }
    return join(known, signal, post);
  }

  /** Resolves with the call's sequence once its ending is durable. @throws Refusal `call_not_found` */
  async cancel(by: { callId: string } | { callSequence: number }, reason: string, principal: string): Promise<number> {
    const live = "callId" in by ? this.#byId.get(by.callId) : this.#bySequence.get(by.callSequence);
    if (live === undefined) {
      const row = await this.#ports.journal.findCall(this.sessionId, by);
      if (row?.endSequence !== undefined) return row.callSequence;
      // It may have arrived between the two looks.
      const arrived = "callId" in by ? this.#byId.has(by.callId) : this.#bySequence.has(by.callSequence);
      if (arrived) return this.cancel(by, reason, principal);
      throw callNotFound(this.sessionId, by);
    }
    await live.lookup;
    switch (live.state.phase) {
      case "absent": {
        const ending = join(live);
        this.#giveUp(live, cancelled(reason));
        return (await ending).callSequence;
      }
      case "running":
        return (await join(live, undefined, (asker) => this.#post(live, { type: "cancel_requested", reason, principal }, asker)))
          .callSequence;
      case "ended":
        await this.#steps.settled();
        return live.state.callSequence;
    }
  }

  /** Commits an event of a running call and answers its sequence. `mine` says whether the asker may speak for the call. */
  async emit(callSequence: number, mine: Ownership, event: { kind: string; dataJson: string; emitId: string }): Promise<number> {
    for (;;) {
      const { released } = this.#steps;
      const inJournal = await this.#ports.journal.findEmit(this.sessionId, callSequence, event.emitId);
      const answer = await this.#withCall(callSequence, mine, (live) => {
        // Something became durable meanwhile, perhaps this very event: look again.
        if (released !== this.#steps.released) return undefined;
        const recorded = live.emits.get(event.emitId) ?? inJournal;
        return ask((asker) => this.#post(live, { type: "emitted", ...event, ...(recorded === undefined ? {} : { recorded }) }, asker));
      });
      if (answer === undefined) continue;
      assert(answer.type === "emitted", "an emit is answered by its sequence");
      return answer.sequence;
    }
  }

  /** Records the outcome as the ending, or says how it stands to the one that is there. */
  async report(callSequence: number, mine: Ownership, judge: (call: OwnedCall) => Promise<Outcome>, principal: string): Promise<Reported> {
    const call = await this.#withCall(callSequence, mine, (live) => ownedCall(live.state));
    const outcome = await judge(call);
    const answer = await this.#withCall(callSequence, mine, (live) => {
      // The deadline came first; only its timer is not through yet.
      if (live.state.phase === "running" && live.deadlineAt <= this.#ports.clock.monotonic()) this.#post(live, { type: "deadline_passed" });
      return ask((asker) => this.#post(live, { type: "returned", outcome, principal }, asker));
    });
    assert(answer.type === "reported", "a report is answered by its disposition");
    return answer;
  }

  /** Ends every open and waiting call as cancelled and the session after them, in one append. */
  async end(principal: string): Promise<void> {
    if (this.#ending !== undefined) return this.#ending;
    if (this.#ended) return this.#steps.settled();
    this.#ending = this.#end(principal);
    try {
      await this.#ending;
    } finally {
      this.#ending = undefined;
    }
  }

  /** Refuses every call that is in no record yet: nothing was sent, and the caller's repeat starts it elsewhere or later. */
  refuseWaiting(refusal: Refusal): void {
    for (const live of [...this.#byId.values()]) if (live.state.phase === "absent") this.#drop(live, refusal);
  }

  /** Stops every timer; open calls stay open in the journal, for the next process. */
  close(): void {
    for (const live of this.#byId.values()) disarm(live);
  }

  /** After a restart: takes up a call that has no ending. */
  reopen(row: CallRow): void {
    const { started, callSequence } = row;
    const deadlineMs = Number(started.deadline?.seconds ?? 0n) * 1000 + (started.deadline?.nanos ?? 0) / 1e6;
    const leftMs = deadlineMs - this.#ports.clock.now();
    const deadlineAt = this.#ports.clock.monotonic() + leftMs;
    const live = liveCall({ callId: started.callId, state: ABSENT, request: undefined, deadlineAt });
    this.#byId.set(live.callId, live);
    this.#become(live, evolve(ABSENT, { sequence: callSequence, entry: { case: "toolCallStarted", value: started } }));
    const holderCanReturn = live.open !== undefined && (live.environment?.canReturn(live.open) ?? false);
    this.#post(live, { type: "reopened", deadlinePassed: leftMs <= 0, holderCanReturn });
  }

  // -- arriving ----------------------------------------------------------------------------------------------

  /** Rejects for nothing: whatever fails is told to those who wait for the call. */
  async #arrive(live: LiveCall, request: CallRequest, judge: JudgeInput): Promise<void> {
    try {
      await this.#lookUpAndJudge(live, request, judge);
    } catch (error) {
      const refusal = refusalOf(error);
      this.#drop(live, refusal);
      if (refusal.reason === "internal") this.#bug(error);
    }
  }

  async #lookUpAndJudge(live: LiveCall, request: CallRequest, judge: JudgeInput): Promise<void> {
    const looking = this.#ports.journal.findCall(this.sessionId, { callId: live.callId });
    const lookedUp = (): void => {
      live.lookup = undefined;
    };
    live.lookup = looking.then(lookedUp, lookedUp);
    const row = await looking;
    live.lookup = undefined;
    if (!this.#arrives(live)) return;
    if (row !== undefined) return this.#answerRecorded(live, row, request);

    const { clock } = this.#ports;
    live.disarm = clock.after(live.deadlineAt - clock.monotonic(), () => this.#giveUp(live, deadlinePassed()));
    const placement = this.catalogue.find(request.name, request.environment);
    const failure = await judge(placement);
    if (!this.#arrives(live)) return;
    if (failure !== undefined) {
      disarm(live);
      return this.#post(live, { type: "refused", request, failure });
    }
    assert(placement !== undefined, "a call without a placement is refused");
    this.#wait(live, placement);
  }

  /** False once the call was given up or refused while something was waited for. */
  #arrives(live: LiveCall): boolean {
    return live.state.phase === "absent" && this.#byId.get(live.callId) === live;
  }

  #answerRecorded(live: LiveCall, row: CallRow, request: CallRequest): void {
    const standing = this.#bySequence.get(row.callSequence) ?? live;
    if (standing === live) this.#become(live, stateOf(row));
    else this.#byId.delete(live.callId);
    this.#post(standing, { type: "requested", request }, everyCaller(live));
  }

  #wait(live: LiveCall, placement: Placement): void {
    const request = requestOf(live);
    const environment = this.#environmentOf(placement);
    const waiting: WaitingCall = {
      sessionId: this.sessionId,
      callId: live.callId,
      placement,
      definitionSha256: request.definitionSha256,
      grant: (receiver) => {
        if (!this.#arrives(live)) return;
        live.waiting = undefined;
        disarm(live);
        this.#post(live, requested(request, receiver));
      },
      giveUp: (failure) => this.#giveUp(live, failed("error", failure)),
    };
    live.waiting = waiting;
    live.environment = environment;
    environment.acquire(waiting);
  }

  #giveUp(live: LiveCall, outcome: Outcome): void {
    if (!this.#arrives(live) || live.lookup !== undefined) return;
    stopWaiting(live);
    this.#post(live, { type: "given_up", request: requestOf(live), outcome });
  }

  // -- deciding ----------------------------------------------------------------------------------------------

  #post(live: LiveCall, event: CallEvent, asker?: Asker): void {
    if (this.#stopped) {
      asker?.refuse(
        new Refusal("internal", `session ${this.sessionId} met a bug and was stopped; see the server's log, and restart the server`),
      );
      return;
    }
    const joins = event.type === "requested" || event.type === "refused";
    if (live.held !== undefined && live.state.phase === "running" && !joins) {
      // The first cause stands; it only waits for the journal.
      asker?.refuse(new Refusal("journal_full", `call ${live.state.callSequence} has an ending that waits for the journal; ask again`));
      return;
    }
    try {
      const before = live.state;
      const { next } = this.#steps;
      const { decision, after } = decideAndEvolve(before, event, next);
      if (event.type === "emitted" && decision.append.length > 0) live.emits.set(event.emitId, next);
      const settle = (): void => {
        live.unsettled--;
        if (event.type === "emitted" && live.emits.get(event.emitId) === next) live.emits.delete(event.emitId);
      };
      live.unsettled++;
      this.#become(live, after);
      this.#steps.take(
        {
          entries: decision.append,
          perform: () => {
            settle();
            for (const effect of decision.effects) this.#perform(live, effect, asker);
            this.#forgetWhenDone(live);
          },
          undo: () => {
            settle();
            this.#become(live, before);
          },
          refuse: (refusal) => {
            asker?.refuse(refusal);
            // A call that goes on needs no append for that; only the failure of an earlier decision took this one back.
            if (event.type === "reopened" && decision.append.length === 0) this.#post(live, event);
            else this.#holdOrDrop(live, event, refusal);
          },
        },
        next,
      );
    } catch (error) {
      this.#bug(error);
      asker?.refuse(
        new Refusal("internal", `session ${this.sessionId} met a bug and was stopped; see the server's log, and restart the server`),
      );
    }
  }

  async #end(principal: string): Promise<void> {
    await Promise.all([...this.#byId.values()].map((live) => live.lookup));
    await new Promise<void>((resolve, reject) => this.#endNow(principal, resolve, reject));
  }

  #endNow(principal: string, done: () => void, refused: (refusal: Refusal) => void): void {
    const { next } = this.#steps;
    const ended: { live: LiveCall; before: Call; effects: readonly Effect[] }[] = [];
    const entries: Entry[] = [];
    for (const live of [...this.#byId.values()]) {
      const before = live.state;
      if (before.phase === "ended") continue;
      if (before.phase === "absent") stopWaiting(live);
      const event: CallEvent =
        before.phase === "absent"
          ? { type: "given_up", request: requestOf(live), outcome: sessionEnded() }
          : (live.held ?? { type: "session_ended" });
      const { decision, after } = decideAndEvolve(before, event, next + entries.length);
      assert(after.phase === "ended", "L3: no call stays open in a session that ends");
      entries.push(...decision.append);
      live.unsettled++;
      this.#become(live, after);
      ended.push({ live, before, effects: decision.effects });
    }
    entries.push(sessionEndedEntry(principal));
    this.#ended = true;
    this.#steps.take(
      {
        entries,
        perform: () => {
          for (const { live, effects } of ended) {
            live.unsettled--;
            for (const effect of effects) this.#perform(live, effect);
            this.#forgetWhenDone(live);
          }
          done();
        },
        undo: () => {
          this.#ended = false;
          for (const { live, before } of ended.toReversed()) {
            live.unsettled--;
            this.#become(live, before);
          }
        },
        refuse: (refusal) => {
          // What only waited has nothing in the journal, and nothing was sent: whoever asked asks again.
          for (const { live, before } of ended) if (before.phase === "absent") this.#drop(live, refusal);
          refused(refusal);
        },
      },
      next,
    );
  }

  #holdOrDrop(live: LiveCall, event: CallEvent, refusal: Refusal): void {
    if (live.state.phase === "absent") {
      this.#drop(live, refusal);
      return;
    }
    if (live.state.phase !== "running" || live.held !== undefined || !ENDS_BY_ITSELF.has(event.type)) {
      this.#forgetWhenDone(live);
      return;
    }
    live.held = event;
    this.#ports.whenWritable(() => {
      live.held = undefined;
      this.#post(live, event);
    });
  }

  #perform(live: LiveCall, effect: Effect, asker?: Asker): void {
    const { open, environment } = live;
    switch (effect.type) {
      case "send":
        if (open !== undefined) environment?.send(open);
        return;
      case "stop":
        if (open !== undefined) environment?.stop(open, effect.cause);
        return;
      case "arm_deadline": {
        if (live.state.phase !== "running") return;
        const { clock } = this.#ports;
        live.disarm = clock.after(live.deadlineAt - clock.monotonic(), () => {
          live.disarm = undefined;
          this.#post(live, { type: "deadline_passed" });
        });
        return;
      }
      case "disarm_deadline":
        disarm(live);
        return;
      case "answer": {
        const askers = effect.to === "callers" ? [...live.callers] : asker === undefined ? [] : [asker];
        for (const one of askers) one.answer(effect.answer);
        return;
      }
    }
  }

  // -- memory ------------------------------------------------------------------------------------------------

  /** The one place where a call's state changes; the Environment's view of what is open follows it. */
  #become(live: LiveCall, after: Call): void {
    const before = live.state;
    live.state = after;
    if (after.phase !== "absent") this.#bySequence.set(after.callSequence, live);
    else if (before.phase !== "absent") this.#bySequence.delete(before.callSequence);
    if (before.phase !== "running" && after.phase === "running") {
      const placement = this.catalogue.find(after.started.name, after.started.environment);
      assert(placement !== undefined, "a running call has its placement");
      live.environment = this.#environmentOf(placement);
      live.open = this.#openCall(live, after, placement);
      live.environment.opened(live.open);
    } else if (before.phase === "running" && after.phase !== "running" && live.open !== undefined) {
      live.environment?.closed(live.open);
    }
  }

  #openCall(live: LiveCall, running: Call & { phase: "running" }, placement: Placement): OpenCall {
    // An ending that was taken back opens the same call again, with whoever held it.
    if (live.open?.callSequence === running.callSequence) return live.open;
    return {
      sessionId: this.sessionId,
      callSequence: running.callSequence,
      started: running.started,
      placement,
      remainingMs: () => live.deadlineAt - this.#ports.clock.monotonic(),
      notify: (notice) => this.#post(live, notice),
    };
  }

  #forgetWhenDone(live: LiveCall): void {
    if (live.state.phase !== "ended" || live.unsettled > 0) return;
    disarm(live);
    if (live.open !== undefined) live.environment?.settled(live.open);
    if (this.#byId.get(live.callId) === live) this.#byId.delete(live.callId);
    if (this.#bySequence.get(live.state.callSequence) === live) this.#bySequence.delete(live.state.callSequence);
  }

  /** The call never came to be; everyone who waits for it is refused. */
  #drop(live: LiveCall, refusal: Refusal): void {
    live.lookup = undefined;
    stopWaiting(live);
    if (live.open !== undefined) live.environment?.settled(live.open);
    if (this.#byId.get(live.callId) === live) this.#byId.delete(live.callId);
    everyCaller(live).refuse(refusal);
  }

  /**
   * Hands `use` the call of that sequence, in the same step in which it was found, so that two who ask at once
   * meet the same call. @throws Refusal `call_not_found`, also for somebody else's call
   */
  #withCall<T>(callSequence: number, mine: Ownership, use: (live: LiveCall) => T): T | Promise<Awaited<T>> {
    const known = this.#bySequence.get(callSequence);
    if (known === undefined) return this.#withRecordedCall(callSequence, mine, use);
    if (!mine(ownedCall(known.state))) throw callNotFound(this.sessionId, { callSequence });
    return use(known);
  }

  async #withRecordedCall<T>(callSequence: number, mine: Ownership, use: (live: LiveCall) => T): Promise<Awaited<T>> {
    const { released } = this.#steps;
    const row = await this.#ports.journal.findCall(this.sessionId, { callSequence });
    // Something became durable meanwhile, or somebody else was faster: look again.
    if (released !== this.#steps.released || this.#bySequence.has(callSequence)) return await this.#withCall(callSequence, mine, use);
    if (row === undefined || !mine(row)) throw callNotFound(this.sessionId, { callSequence });
    const live = liveCall({ callId: row.started.callId, state: stateOf(row), request: undefined, deadlineAt: 0 });
    assert(live.state.phase === "ended", "a running call is in memory");
    this.#bySequence.set(callSequence, live);
    const used = use(live);
    this.#forgetWhenDone(live);
    return await used;
  }

  /** An ended session starts nothing, and still says how its calls ended. Nobody is told of an end that may yet be taken back. */
  async #refuseUnlessRecorded(callId: string): Promise<void> {
    while (this.#ended || this.#ending !== undefined) {
      if ((await this.#ports.journal.findCall(this.sessionId, { callId })) !== undefined) return;
      await (this.#ending ?? this.#steps.settled());
      if (!this.#ended) continue;
      throw new Refusal("session_ended", `session ${this.sessionId} has ended; create another to call Tools`, {
        session_id: this.sessionId,
      });
    }
  }

  #environmentOf(placement: Placement): EnvironmentPort {
    const kind = placement.environment.kind.case;
    const environment = kind === undefined ? undefined : this.#ports.environments[kind];
    assert(environment !== undefined, `an Environment of kind ${kind ?? "none"} was admitted and is here`);
    return environment;
  }

  /** A session that met a bug does nothing any more until the server is restarted and reads what is true. */
  #bug(error: unknown): void {
    this.#stopped = true;
    this.#ports.onBug(this.sessionId, error);
  }
}

/** Causes of an ending that nobody would post a second time. */
const ENDS_BY_ITSELF: ReadonlySet<CallEvent["type"]> = new Set(["returned", "undeliverable", "deadline_passed", "lost", "reopened"]);

function decideAndEvolve(before: Call, event: CallEvent, next: number): { decision: Decision; after: Call } {
  const decision = decide(before, { next, ...event });
  let after = before;
  for (const [index, entry] of decision.append.entries()) after = evolve(after, { sequence: next + index, entry });
  return { decision, after };
}

function conflict(callId: string, standing: Content): Refusal {
  return new Refusal(
    "call_id_conflict",
    `call_id ${JSON.stringify(callId)} names a call of ${standing.name} in ${standing.environment} that is on its way with other content; use a new call_id`,
    { call_id: callId },
  );
}
