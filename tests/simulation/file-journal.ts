import { cpSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { LIMITS } from "../../server/src/config.js";
import { type Entry, type Journal, JournalError } from "../../server/src/journal/port.js";
import { openSqliteJournal } from "../../server/src/journal/sqlite/open-journal.js";
import type { Clock } from "../../server/src/runtime/clock.js";
import type { AppendWatch, MemoryFile } from "../support/memory-journal.js";
import type { Ground } from "./ground.js";
import type { LifeJournal } from "./server.js";

/** Where a flush costs nothing: no power is lost here, only processes. */
const MEMORY_DISK = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();

/** The directories of one server's journal: a crash leaves what was committed, in a directory of its own. */
export class JournalDirectories {
  readonly #all: string[] = [];
  #underway = 0;

  constructor() {
    this.add();
  }

  get current(): string {
    return this.#all.at(-1) ?? "";
  }

  get file(): string {
    return join(this.current, "journal.sqlite3");
  }

  add(): string {
    const path = mkdtempSync(join(MEMORY_DISK, "brain-every-step-"));
    this.#all.push(path);
    return path;
  }

  /** Requests that the file has not answered. */
  get underway(): number {
    return this.#underway;
  }

  async track<T>(ask: () => Promise<T>): Promise<T> {
    this.#underway++;
    try {
      return await ask();
    } finally {
      this.#underway--;
    }
  }

  remove(): void {
    for (const path of this.#all) rmSync(path, { recursive: true, force: true });
  }
}

/**
 * The real journal of one life of a server, with a fault at one of its appends. Whatever it makes durable is noted in
 * `mirror` too, before anybody hears of it.
 */
export class FileJournal implements LifeJournal {
  readonly #opened: Promise<Journal>;
  readonly #directories: JournalDirectories;
  readonly #ground: Ground;
  readonly #mirror: MemoryFile;
  readonly #watch: AppendWatch;
  readonly unheard = 0;
  readonly flushCount = 0;
  #dead = false;

  constructor(directories: JournalDirectories, ground: Ground, clock: Clock, watch: AppendWatch) {
    this.#directories = directories;
    this.#ground = ground;
    this.#mirror = ground.file;
    this.#watch = watch;
    const onFatal = (error: Error): void => ground.oracle.fail(error.message);
    this.#opened = openSqliteJournal({ directory: directories.current, clock, limits: LIMITS, mode: "inline", onFatal });
  }

  /** What is committed by now is what the next life finds. */
  die(): void {
    if (this.#dead) return;
    this.#dead = true;
    const from = this.#directories.current;
    cpSync(from, this.#directories.add(), { recursive: true, filter: (source) => !/-shm$|lock/.test(source) });
    void this.close();
  }

  async close(): Promise<void> {
    this.#dead = true;
    await (await this.#opened).close();
  }

  append(sessionId: string, expectedNext: number, entries: readonly Entry[]): Promise<void> {
    if (this.#dead) return NEVER;
    this.#watch.asked(sessionId, expectedNext, entries);
    const fault = this.#ground.faults.at("append");
    if (fault === "full" || fault === "unavailable") {
      this.#watch.refused(sessionId, expectedNext, entries);
      return Promise.reject(new JournalError(`journal_${fault}`, "the append was not made"));
    }
    if (fault === "crash before") {
      this.#crash();
      return NEVER;
    }
    const made = this.#heard(async (journal) => {
      try {
        await journal.append(sessionId, expectedNext, entries);
      } catch (error) {
        if (!this.#dead) this.#watch.refused(sessionId, expectedNext, entries);
        throw error;
      }
      if (this.#dead) return;
      this.#mirror.commit(sessionId, expectedNext, entries, this.#ground.server.wallMs());
      if (fault === "crash after") this.#crash();
      else this.#noteStarts(entries);
    });
    return fault === "crash after" ? NEVER : made;
  }

  /** When what is being committed has been committed, and noted. */
  #crash(): void {
    const { schedule, server } = this.#ground;
    schedule.after(0, () => server.crash(100));
  }

  #noteStarts(entries: readonly Entry[]): void {
    for (const entry of entries) {
      if (entry.case !== "toolCallStarted" || entry.value.receiver === undefined) continue;
      if (this.#ground.faults.at("start") === "stream lost") this.#ground.loseStream(entry.value.receiver.instanceId);
    }
  }

  /** Asks the file; the dead hear nothing. */
  #heard<T>(ask: (journal: Journal) => Promise<T>): Promise<T> {
    if (this.#dead) return NEVER;
    return new Promise((resolve, reject) => {
      const answered = (answer: () => void): void => {
        if (!this.#dead) answer();
      };
      // Nobody waits for what is never answered.
      this.#directories
        .track(async () => ask(await this.#opened))
        .then(
          (value) => answered(() => resolve(value)),
          (error: unknown) => answered(() => reject(error)),
        );
    });
  }

  read: Journal["read"] = (...from) => this.#heard((journal) => journal.read(...from));
  watch: Journal["watch"] = () => () => undefined;
  findSession: Journal["findSession"] = (...by) => this.#heard((journal) => journal.findSession(...by));
  findSessionByRequestId: Journal["findSessionByRequestId"] = (...by) => this.#heard((journal) => journal.findSessionByRequestId(...by));
  listSessions: Journal["listSessions"] = (...by) => this.#heard((journal) => journal.listSessions(...by));
  deleteSession: Journal["deleteSession"] = (...by) => this.#heard((journal) => journal.deleteSession(...by));
  openCalls: Journal["openCalls"] = () => this.#heard((journal) => journal.openCalls());
  findCall: Journal["findCall"] = (...by) => this.#heard((journal) => journal.findCall(...by));
  listCalls: Journal["listCalls"] = (...by) => this.#heard((journal) => journal.listCalls(...by));
  findEmit: Journal["findEmit"] = (...by) => this.#heard((journal) => journal.findEmit(...by));
  putHost: Journal["putHost"] = (...host) => this.#heard((journal) => journal.putHost(...host));
  findHost: Journal["findHost"] = (...by) => this.#heard((journal) => journal.findHost(...by));
  findHostByToken: Journal["findHostByToken"] = (...by) => this.#heard((journal) => journal.findHostByToken(...by));
  listHosts: Journal["listHosts"] = (...by) => this.#heard((journal) => journal.listHosts(...by));
  deleteHost: Journal["deleteHost"] = (...by) => this.#heard((journal) => journal.deleteHost(...by));
}

const NEVER = new Promise<never>(() => undefined);
