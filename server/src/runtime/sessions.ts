/**
 * The sessions of this server: created, found, taken into memory and dropped from it.
 *
 * 1. A session has at most one driver in memory, and none is dropped while anybody uses it or a call is open.
 * 2. Taking a session up reads its first record and its open calls, never its history.
 */

import { randomUUID } from "node:crypto";
import {
  type CallToolRequest,
  type CreateSessionRequest,
  type Record as JournalRecord,
  type ListSessionsRequest,
  type Outcome,
  type Session,
  SessionSchema,
  SessionState,
} from "@aexhq/brain-proto";
import { create, equals } from "@bufbuild/protobuf";
import { durationFromMs, durationMs, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type Config, LIMITS } from "../config.js";
import { AssertionFailed } from "../core/assert.js";
import { buildCatalogue, type Catalogue, type EnvironmentKind, restoreCatalogue } from "../core/catalogue.js";
import { checkKey } from "../core/names.js";
import { utf8Length } from "../core/outcome.js";
import { invalidArgument, Refusal } from "../core/refusal.js";
import type { Environments } from "../environments/port.js";
import type { Journal, SessionRow } from "../journal/port.js";
import type { Validator } from "../validation/port.js";
import type { Clock } from "./clock.js";
import { sessionCreatedEntry } from "./entries.js";
import { Judge } from "./judge.js";
import type { Ending, Ownership, Reported } from "./live-call.js";
import type { Log } from "./log.js";
import { checkPageSize } from "./pages.js";
import { refusing } from "./refusing.js";
import { SessionDriver } from "./session.js";
import { checkTimeout } from "./timeouts.js";

export interface SessionsPorts {
  readonly journal: Journal;
  readonly clock: Clock;
  readonly validator: Validator;
  readonly environments: Environments;
  readonly config: Config;
  readonly log: Log;
}

export class Sessions {
  readonly #ports: SessionsPorts;
  readonly #judge: Judge;
  readonly #supported: ReadonlySet<EnvironmentKind>;
  /** Least recently used first. */
  readonly #drivers = new Map<string, { driver: Promise<SessionDriver>; loaded: SessionDriver | undefined; users: number }>();
  /** What waits for the journal to take appends again. */
  #blocked: (() => void)[] = [];
  readonly #creating = new Map<string, Promise<Session>>();
  #draining = false;

  constructor(ports: SessionsPorts) {
    this.#ports = ports;
    this.#judge = new Judge(ports.validator);
    this.#supported = new Set(Object.keys(ports.environments) as EnvironmentKind[]);
  }

  // -- sessions ----------------------------------------------------------------------------------------------

  /** @throws Refusal naming what cannot be accepted; no session is left behind then. */
  async create(request: CreateSessionRequest, principal: string): Promise<Session> {
    const { requestId } = request;
    if (requestId === "") return this.#create(request, principal);
    checkKey("request_id", requestId);
    // Two that come at once with one request_id are one request.
    const underway = this.#creating.get(requestId);
    if (underway !== undefined) {
      await underway.catch(() => undefined);
      return this.create(request, principal);
    }
    const creating = this.#create(request, principal);
    this.#creating.set(requestId, creating);
    try {
      return await creating;
    } finally {
      this.#creating.delete(requestId);
    }
  }

  async #create(request: CreateSessionRequest, principal: string): Promise<Session> {
    if (this.#draining) throw draining();
    const { requestId, labels } = request;
    checkLabels(labels);
    for (const name of Object.keys(request.credentials)) {
      throw invalidArgument("credentials", `${JSON.stringify(name)} is no remote Environment and no model of this session; leave it out`);
    }
    const catalogue = buildCatalogue(request.environments, request.tools, this.#supported);
    const timeoutMs = checkTimeout("default_tool_timeout", request.defaultToolTimeout, this.#ports.config.toolTimeoutMs);
    const session = create(SessionSchema, {
      sessionId: randomUUID(),
      state: SessionState.OPEN,
      createTime: timestampFromMs(this.#ports.clock.now()),
      lastSequence: 1,
      environments: [...catalogue.environments],
      tools: [...catalogue.tools],
      defaultToolTimeout: durationFromMs(timeoutMs),
      labels,
    });
    const earlier = requestId === "" ? undefined : await this.#ports.journal.findSessionByRequestId(requestId);
    if (earlier !== undefined) return this.#sameSession(earlier, session, requestId);
    await this.#judge.checkSchemas(catalogue, session.sessionId);
    for (const placement of catalogue.placements) {
      const kind = placement.environment.kind.case;
      if (kind !== undefined) await this.#ports.environments[kind]?.admit(placement);
    }
    await refusing(this.#ports.journal.append(session.sessionId, 1, [sessionCreatedEntry(session, principal, requestId)]));
    return session;
  }

  async #sameSession(sessionId: string, wanted: Session, requestId: string): Promise<Session> {
    const created = await this.#created(sessionId);
    const { createTime } = created;
    const comparable = create(SessionSchema, { ...wanted, sessionId, ...(createTime === undefined ? {} : { createTime }) });
    if (!equals(SessionSchema, created, comparable)) {
      throw new Refusal(
        "request_id_conflict",
        `request_id ${JSON.stringify(requestId)} made session ${sessionId} with other content; use a new request_id`,
        {
          session_id: sessionId,
        },
      );
    }
    return this.get(sessionId);
  }

  async get(sessionId: string): Promise<Session> {
    const row = await this.#row(sessionId);
    const session = await this.#created(sessionId);
    return { ...session, state: row.ended ? SessionState.ENDED : SessionState.OPEN, lastSequence: row.lastSequence };
  }

  /** Summaries, newest first. */
  list(query: ListSessionsRequest): Promise<{ sessions: SessionRow[]; nextPageToken: string }> {
    const { pageToken, labels, state } = query;
    const ended = state === SessionState.UNSPECIFIED ? {} : { ended: state === SessionState.ENDED };
    return this.#ports.journal.listSessions({ pageToken, pageSize: checkPageSize(query.pageSize), labels, ...ended });
  }

  async end(sessionId: string, principal: string): Promise<Session> {
    await this.#use(sessionId, (driver) => driver.end(principal));
    return this.get(sessionId);
  }

  async delete(sessionId: string, principal: string): Promise<void> {
    await this.#use(sessionId, (driver) => driver.end(principal));
    await refusing(this.#ports.journal.deleteSession(sessionId));
    this.#drivers.delete(sessionId);
  }

  // -- calls -------------------------------------------------------------------------------------------------

  async callTool(request: CallToolRequest, from: { principal: string; traceparent: string }, signal?: AbortSignal): Promise<Ending> {
    // In this order: whatever comes between the two readings, no timer fires before the deadline that is recorded.
    const now = this.#ports.clock.now();
    const arrivedAt = this.#ports.clock.monotonic();
    if (this.#draining) throw draining();
    checkKey("call_id", request.callId);
    const input = this.#judge.acceptCall(request);
    return await this.#use(request.sessionId, (driver) => {
      const timeoutMs = checkTimeout("timeout", request.timeout, driver.defaultTimeoutMs);
      const placement = driver.catalogue.find(request.name, request.environment);
      const asked = {
        callId: request.callId,
        name: request.name,
        environment: request.environment,
        inputJson: input.text,
        definitionSha256: placement === undefined ? "" : this.#judge.definitionSha256(placement),
        principal: from.principal,
        traceparent: from.traceparent,
        deadlineMs: Math.ceil(now + timeoutMs),
        arrivedAt,
        timeoutMs,
      };
      return driver.callTool(asked, () => this.#judge.input(driver.catalogue, request, input), signal);
    });
  }

  /** Resolves when the call has its ending. @throws Refusal `call_not_found` */
  cancelCall(sessionId: string, by: { callId: string } | { callSequence: number }, reason: string, principal: string): Promise<number> {
    const bytes = utf8Length(reason);
    if (bytes > LIMITS.cancelReasonBytes)
      throw invalidArgument("reason", `is ${bytes} bytes; at most ${LIMITS.cancelReasonBytes} are allowed`);
    return this.#use(sessionId, (driver) => driver.cancel(by, reason, principal));
  }

  emit(
    sessionId: string,
    callSequence: number,
    mine: Ownership,
    event: { kind: string; dataJson: string; emitId: string },
  ): Promise<number> {
    const accepted = this.#judge.acceptEvent(event);
    return this.#useOwned(sessionId, callSequence, (driver) => driver.emit(callSequence, mine, accepted));
  }

  report(sessionId: string, callSequence: number, mine: Ownership, outcome: Outcome | undefined, principal: string): Promise<Reported> {
    return this.#useOwned(sessionId, callSequence, (driver) =>
      driver.report(callSequence, mine, ({ started }) => this.#judge.outcome(driver, started, outcome), principal),
    );
  }

  // -- life --------------------------------------------------------------------------------------------------

  /** Takes up every open call; nothing is sent. */
  async recover(): Promise<number> {
    const rows = await this.#ports.journal.openCalls();
    for (const row of rows) await this.#use(row.sessionId, (driver) => driver.reopen(row));
    return rows.length;
  }

  /** No new calls and sessions from now on; what only waits is refused, since nothing was sent. */
  drain(): void {
    this.#draining = true;
    for (const { loaded } of this.#drivers.values()) loaded?.refuseWaiting(draining());
  }

  /** Nothing of this object keeps a process alive afterwards. */
  close(): void {
    for (const { loaded } of this.#drivers.values()) loaded?.close();
  }

  get openCalls(): number {
    let open = 0;
    for (const { loaded } of this.#drivers.values()) open += loaded?.openCalls ?? 0;
    return open;
  }

  /** Resolves when no call is open, or after `withinMs`. */
  async quiet(withinMs: number): Promise<void> {
    const { clock } = this.#ports;
    const until = clock.monotonic() + withinMs;
    while (this.openCalls > 0 && clock.monotonic() < until) {
      await new Promise<void>((resolve) => clock.after(Math.min(20, until - clock.monotonic()), resolve));
    }
  }

  // -- inside ------------------------------------------------------------------------------------------------

  async #row(sessionId: string): Promise<SessionRow> {
    const row = await this.#ports.journal.findSession(sessionId);
    if (row === undefined) throw sessionNotFound(sessionId);
    return row;
  }

  async #created(sessionId: string): Promise<Session> {
    const [first] = await this.#ports.journal.read(sessionId, 0, { records: 1, bytes: 1 });
    return sessionOf(first, sessionId);
  }

  /** The same, for those to whom another's session must look like no call. */
  async #useOwned<T>(sessionId: string, callSequence: number, use: (driver: SessionDriver) => Promise<T>): Promise<T> {
    try {
      return await this.#use(sessionId, use);
    } catch (error) {
      if (!(error instanceof Refusal) || error.reason !== "session_not_found") throw error;
      throw new Refusal("call_not_found", `session ${sessionId} has no call with call_sequence ${callSequence}`, { session_id: sessionId });
    }
  }

  async #use<T>(sessionId: string, use: (driver: SessionDriver) => T): Promise<Awaited<T>> {
    let held = this.#drivers.get(sessionId);
    if (held === undefined) {
      held = { driver: this.#load(sessionId), loaded: undefined, users: 0 };
      this.#drivers.set(sessionId, held);
    }
    const entry = held;
    entry.users++;
    try {
      entry.loaded ??= await entry.driver;
      return await use(entry.loaded);
    } catch (error) {
      if (entry.loaded === undefined && this.#drivers.get(sessionId) === entry) this.#drivers.delete(sessionId);
      throw error;
    } finally {
      entry.users--;
      this.#makeRoom(sessionId);
    }
  }

  /** Drops the sessions longest unused beyond the limit; one with an open call stays. */
  #makeRoom(justUsed: string): void {
    if (this.#drivers.size <= LIMITS.idleSessions) return;
    const entry = this.#drivers.get(justUsed);
    if (entry !== undefined) {
      this.#drivers.delete(justUsed);
      this.#drivers.set(justUsed, entry);
    }
    for (const [sessionId, { loaded, users }] of this.#drivers) {
      if (this.#drivers.size <= LIMITS.idleSessions) return;
      if (users === 0 && loaded?.idle === true) this.#drivers.delete(sessionId);
    }
  }

  async #load(sessionId: string): Promise<SessionDriver> {
    const row = await this.#row(sessionId);
    const session = await this.#created(sessionId);
    const { journal, clock, environments, config, log } = this.#ports;
    const catalogue: Catalogue = restoreCatalogue(session.environments, session.tools);
    const defaultTimeoutMs = session.defaultToolTimeout === undefined ? config.toolTimeoutMs : durationMs(session.defaultToolTimeout);
    return new SessionDriver(
      { sessionId, catalogue, defaultTimeoutMs, next: row.lastSequence + 1, ended: row.ended },
      {
        journal,
        clock,
        environments,
        onBug: (id, error) => {
          const what = error instanceof AssertionFailed ? "an assertion failed" : "an unexpected error was met";
          log.error({ session_id: id, err: error }, `${what}; the session is stopped until the server is restarted`);
        },
        whenWritable: (again) => this.#whenWritable(again),
      },
    );
  }

  #whenWritable(again: () => void): void {
    this.#blocked.push(again);
    if (this.#blocked.length > 1) return;
    this.#ports.log.warn({}, "the journal takes no appends; endings are held until it does");
    this.#ports.clock.after(LIMITS.journalRetryMs, () => {
      const blocked = this.#blocked;
      this.#blocked = [];
      for (const retry of blocked) retry();
    });
  }
}

function sessionOf(record: JournalRecord | undefined, sessionId: string): Session {
  if (record?.entry.case === "sessionCreated" && record.entry.value.session !== undefined) return record.entry.value.session;
  throw sessionNotFound(sessionId);
}

export function sessionNotFound(sessionId: string): Refusal {
  return new Refusal("session_not_found", `there is no session ${JSON.stringify(sessionId.slice(0, 80))}`, {
    session_id: sessionId.slice(0, 80),
  });
}

function draining(): Refusal {
  return new Refusal("server_draining", "the server is about to stop and takes no new work; ask again later");
}

function checkLabels(labels: Readonly<Record<string, string>>): void {
  const names = Object.keys(labels);
  if (names.length > LIMITS.labels) throw invalidArgument("labels", `has ${names.length} labels; at most ${LIMITS.labels} are allowed`);
  for (const name of names) {
    if (utf8Length(name) > LIMITS.labelBytes || utf8Length(labels[name] ?? "") > LIMITS.labelBytes) {
      throw invalidArgument("labels", `${JSON.stringify(name.slice(0, 80))} or its value is over ${LIMITS.labelBytes} bytes; shorten it`);
    }
  }
}
