import { type Record as JournalRecord, RecordSchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import {
  type AppendFailure,
  type CallQuery,
  type CallRow,
  type Entry,
  type HostRow,
  type Journal,
  JournalError,
  type PageLimits,
  type SessionQuery,
  type SessionRow,
} from "../../server/src/journal/port.js";

interface StoredSession {
  readonly sessionId: string;
  readonly requestId: string;
  readonly createTimeMs: number;
  readonly labels: Readonly<Record<string, string>>;
  ended: boolean;
  readonly records: JournalRecord[];
  readonly calls: Map<number, CallRow>;
  readonly callIds: Map<string, number>;
  readonly emits: Map<string, number>;
}

/** What is durable: it outlives every journal that is opened over it. */
export class MemoryFile {
  readonly sessions = new Map<string, StoredSession>();
  readonly open = new Map<string, CallRow>();
  readonly hosts = new Map<string, HostRow>();
  /** Told of everything that becomes durable. */
  onCommit: (sessionId: string, records: readonly JournalRecord[]) => void = () => undefined;

  /** Makes the entries durable, all or none. @throws JournalError, or an Error for what no journal would take. */
  commit(sessionId: string, expectedNext: number, entries: readonly Entry[], nowMs: number): void {
    const [first] = entries;
    let session = this.sessions.get(sessionId);
    if (session === undefined) {
      if (first?.case !== "sessionCreated") throw new JournalError("session_not_found", `there is no session ${sessionId}`);
      const { requestId, session: created } = first.value;
      const none = { records: [], calls: new Map(), callIds: new Map(), emits: new Map() };
      session = { sessionId, requestId, createTimeMs: nowMs, labels: created?.labels ?? {}, ended: false, ...none };
    }
    const next = session.records.length + 1;
    if (next !== expectedNext) throw new JournalError("sequence_conflict", `sequence ${expectedNext} is not next, ${next} is`);
    for (const [index, entry] of entries.entries()) checkUnique(session, next + index, entry, entries);
    this.sessions.set(sessionId, session);
    const records: JournalRecord[] = [];
    for (const entry of entries) {
      const record = create(RecordSchema, { sessionId, sequence: session.records.length + 1, commitTime: timestampFromMs(nowMs), entry });
      session.records.push(record);
      records.push(record);
      this.#project(session, record.sequence, entry);
    }
    this.onCommit(sessionId, records);
  }

  call(sessionId: string, by: { callId: string } | { callSequence: number }): CallRow | undefined {
    const session = this.sessions.get(sessionId);
    const callSequence = "callId" in by ? session?.callIds.get(by.callId) : by.callSequence;
    return callSequence === undefined ? undefined : session?.calls.get(callSequence);
  }

  emit(sessionId: string, callSequence: number, emitId: string): number | undefined {
    return this.sessions.get(sessionId)?.emits.get(`${callSequence} ${emitId}`);
  }

  session(sessionId: string): SessionRow | undefined {
    const session = this.sessions.get(sessionId);
    if (session === undefined) return undefined;
    const { ended, createTimeMs, labels, records, calls } = session;
    let openToolCalls = 0;
    for (const call of calls.values()) if (call.endSequence === undefined) openToolCalls++;
    return { sessionId, ended, createTimeMs, labels, lastSequence: records.length, openToolCalls };
  }

  #project(session: StoredSession, sequence: number, entry: Entry): void {
    const { sessionId, calls } = session;
    const key = (callSequence: number): string => `${sessionId}/${callSequence}`;
    switch (entry.case) {
      case "sessionEnded":
        session.ended = true;
        return;
      case "toolCallStarted": {
        const row = { sessionId, callSequence: sequence, started: entry.value };
        calls.set(sequence, row);
        session.callIds.set(entry.value.callId, sequence);
        this.open.set(key(sequence), row);
        return;
      }
      case "eventEmitted":
        if (entry.value.origin.case === "callSequence") session.emits.set(`${entry.value.origin.value} ${entry.value.emitId}`, sequence);
        return;
      case "toolCallEnded": {
        const { callSequence } = entry.value;
        calls.set(callSequence, { ...started(calls, callSequence), endSequence: sequence, ended: entry.value });
        this.open.delete(key(callSequence));
        return;
      }
      case "toolCallLateOutcome": {
        const { callSequence } = entry.value;
        calls.set(callSequence, { ...started(calls, callSequence), lateSequence: sequence, late: entry.value });
        return;
      }
    }
  }
}

function started(calls: ReadonlyMap<number, CallRow>, callSequence: number): CallRow {
  const row = calls.get(callSequence);
  if (row === undefined) throw new Error(`call ${callSequence} was never started`);
  return row;
}

/** What the unique indexes of a database refuse. */
function checkUnique(session: StoredSession, sequence: number, entry: Entry, all: readonly Entry[]): void {
  const twice = (what: string): never => {
    throw new Error(`record ${sequence} of session ${session.sessionId} is the second ${what}`);
  };
  switch (entry.case) {
    case "toolCallStarted":
      if (session.callIds.has(entry.value.callId)) twice(`start of call_id ${entry.value.callId}`);
      return;
    case "eventEmitted":
      if (entry.value.origin.case === "callSequence" && session.emits.has(`${entry.value.origin.value} ${entry.value.emitId}`)) {
        twice(`event with emit_id ${entry.value.emitId}`);
      }
      return;
    case "toolCallEnded": {
      const { callSequence } = entry.value;
      const startsHere = all.some((other) => other.case === "toolCallStarted");
      const row = session.calls.get(callSequence);
      if (row === undefined && !startsHere) throw new Error(`record ${sequence} ends call ${callSequence}, which never started`);
      if (row?.endSequence !== undefined) twice(`ending of call ${callSequence}`);
      return;
    }
    case "toolCallLateOutcome":
      if (session.calls.get(entry.value.callSequence)?.lateSequence !== undefined)
        twice(`late outcome of call ${entry.value.callSequence}`);
  }
}

/** When things happen in a journal, and what fails; whoever makes the journal decides. */
export interface MemoryJournalFate {
  now(): number;
  /** Calls `run` when what waits is committed. */
  commitLater(run: () => void): void;
  /** Calls `run` when those who asked hear of a commit that was just made. */
  answerLater(run: () => void): void;
  /** Answers a read at some moment; what it sees is what was durable at that moment or when it was asked. */
  read<T>(look: () => T): Promise<T>;
  /** Why this append is not made, if it is not. */
  refuses(sessionId: string, entries: readonly Entry[]): AppendFailure | undefined;
}

/** Sees every append: when it is asked for, and when it is refused. */
export interface AppendWatch {
  asked(sessionId: string, expectedNext: number, entries: readonly Entry[]): void;
  refused(sessionId: string, expectedNext: number, entries: readonly Entry[]): void;
  /** The journal would never take it: a bug of whoever asked. */
  broken(message: string): void;
}

interface Waiting {
  readonly sessionId: string;
  readonly expectedNext: number;
  readonly entries: readonly Entry[];
  resolve(): void;
  reject(error: Error): void;
}

/**
 * The journal of one life of a server over what is durable.
 *
 * 1. Whatever waits when a commit is made is made durable together; who asked hears of it later.
 * 2. Appends of a session are made in the order they are asked for; when one fails, every later one that was asked for
 *    before that failure was heard fails too.
 * 3. After `die` nothing is made and nobody is answered; what was durable stays.
 */
export class MemoryJournal implements Journal {
  readonly #file: MemoryFile;
  readonly #fate: MemoryJournalFate;
  readonly #watch: AppendWatch;
  #queue: Waiting[] = [];
  readonly #failing = new Set<string>();
  #running = false;
  #dead = false;
  #flushes = 0;
  #unheard = 0;

  constructor(file: MemoryFile, fate: MemoryJournalFate, watch: AppendWatch) {
    this.#file = file;
    this.#fate = fate;
    this.#watch = watch;
  }

  get flushCount(): number {
    return this.#flushes;
  }

  /** Appends that are asked for and not durable. */
  get waiting(): number {
    return this.#queue.length;
  }

  /** Appends that are durable, and who asked for them has not heard of it. */
  get unheard(): number {
    return this.#unheard;
  }

  die(): void {
    this.#dead = true;
    this.#queue = [];
  }

  append(sessionId: string, expectedNext: number, entries: readonly Entry[]): Promise<void> {
    if (this.#dead) return new Promise(() => undefined);
    this.#watch.asked(sessionId, expectedNext, entries);
    if (this.#failing.has(sessionId)) {
      this.#watch.refused(sessionId, expectedNext, entries);
      return Promise.reject(cascade(sessionId));
    }
    const made = new Promise<void>((resolve, reject) => {
      this.#queue.push({ sessionId, expectedNext, entries, resolve, reject });
      this.#wake();
    });
    // Registered before any reaction of the caller's: its retry is no longer one of the appends asked for before.
    made.catch(() => this.#failing.delete(sessionId));
    return made;
  }

  #wake(): void {
    if (this.#running || this.#queue.length === 0) return;
    this.#running = true;
    this.#fate.commitLater(() => {
      if (this.#dead) return;
      const batch = this.#queue.splice(0);
      const failures = this.#commit(batch);
      this.#unheard = batch.length - failures.size;
      this.#fate.answerLater(() => {
        if (this.#dead) return;
        this.#unheard = 0;
        this.#answer(batch, failures);
        this.#running = false;
        this.#wake();
      });
    });
  }

  #commit(batch: readonly Waiting[]): Map<Waiting, Error> {
    const failures = new Map<Waiting, Error>();
    const failed = new Set<string>();
    for (const waiting of batch) {
      const { sessionId, expectedNext, entries } = waiting;
      const failure = failed.has(sessionId) ? "sequence_conflict" : this.#fate.refuses(sessionId, entries);
      if (failure !== undefined) {
        failures.set(waiting, failure === "sequence_conflict" ? cascade(sessionId) : new JournalError(failure, "the append was not made"));
        failed.add(sessionId);
        continue;
      }
      try {
        this.#file.commit(sessionId, expectedNext, entries, this.#fate.now());
      } catch (error) {
        this.#watch.broken(error instanceof Error ? error.message : String(error));
        failures.set(waiting, error instanceof Error ? error : new Error(String(error)));
        failed.add(sessionId);
      }
    }
    if (failures.size < batch.length) this.#flushes++;
    return failures;
  }

  #answer(batch: readonly Waiting[], failures: ReadonlyMap<Waiting, Error>): void {
    for (const waiting of batch) {
      const failure = failures.get(waiting);
      if (failure === undefined) {
        waiting.resolve();
        continue;
      }
      this.#refuse(waiting, failure);
      this.#failing.add(waiting.sessionId);
      const [falling, kept] = [[] as Waiting[], [] as Waiting[]];
      for (const other of this.#queue) (other.sessionId === waiting.sessionId ? falling : kept).push(other);
      this.#queue = kept;
      for (const other of falling) this.#refuse(other, cascade(other.sessionId));
    }
  }

  #refuse({ sessionId, expectedNext, entries, reject }: Waiting, error: Error): void {
    this.#watch.refused(sessionId, expectedNext, entries);
    reject(error);
  }

  #read<T>(look: () => T): Promise<T> {
    if (this.#dead) return new Promise(() => undefined);
    return new Promise((resolve, reject) => {
      this.#fate.read(look).then((seen) => {
        if (!this.#dead) resolve(seen);
      }, reject);
    });
  }

  read(sessionId: string, after: number, limits: PageLimits): Promise<JournalRecord[]> {
    return this.#read(() => this.#file.sessions.get(sessionId)?.records.slice(after, after + limits.records) ?? []);
  }

  watch(): () => void {
    throw new Error("nobody watches a journal in memory");
  }

  findSession(sessionId: string): Promise<SessionRow | undefined> {
    return this.#read(() => this.#file.session(sessionId));
  }

  findSessionByRequestId(requestId: string): Promise<string | undefined> {
    return this.#read(() => [...this.#file.sessions.values()].find((session) => session.requestId === requestId)?.sessionId);
  }

  listSessions(_query: SessionQuery): Promise<{ sessions: SessionRow[]; nextPageToken: string }> {
    return this.#read(() => {
      const sessions = [...this.#file.sessions.keys()].flatMap((sessionId) => this.#file.session(sessionId) ?? []);
      return { sessions, nextPageToken: "" };
    });
  }

  async deleteSession(sessionId: string): Promise<void> {
    const session = this.#file.sessions.get(sessionId);
    for (const callSequence of session?.calls.keys() ?? []) this.#file.open.delete(`${sessionId}/${callSequence}`);
    this.#file.sessions.delete(sessionId);
  }

  openCalls(): Promise<CallRow[]> {
    return this.#read(() => [...this.#file.open.values()]);
  }

  findCall(sessionId: string, by: { callId: string } | { callSequence: number }): Promise<CallRow | undefined> {
    return this.#read(() => this.#file.call(sessionId, by));
  }

  listCalls(query: CallQuery): Promise<CallRow[]> {
    return this.#read(() => {
      const wanted = (row: CallRow): boolean =>
        row.callSequence > query.afterCallSequence && (query.open === undefined || query.open === (row.endSequence === undefined));
      return [...(this.#file.sessions.get(query.sessionId)?.calls.values() ?? [])].filter(wanted).slice(0, query.pageSize);
    });
  }

  findEmit(sessionId: string, callSequence: number, emitId: string): Promise<number | undefined> {
    return this.#read(() => this.#file.emit(sessionId, callSequence, emitId));
  }

  async putHost(host: HostRow): Promise<HostRow> {
    this.#file.hosts.set(host.hostId, host);
    return host;
  }

  findHost(hostId: string): Promise<HostRow | undefined> {
    return this.#read(() => this.#file.hosts.get(hostId));
  }

  async findHostByToken(): Promise<HostRow | undefined> {
    throw new Error("tokens are shown at the port, which is not simulated");
  }

  async listHosts(): Promise<{ hosts: HostRow[]; nextPageToken: string }> {
    return { hosts: [...this.#file.hosts.values()], nextPageToken: "" };
  }

  async deleteHost(hostId: string): Promise<void> {
    this.#file.hosts.delete(hostId);
  }

  async close(): Promise<void> {
    this.die();
  }
}

function cascade(sessionId: string): JournalError {
  return new JournalError("sequence_conflict", `an earlier append of session ${sessionId} was not made, so this one was not either`);
}
