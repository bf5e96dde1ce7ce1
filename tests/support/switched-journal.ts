import type { Entry } from "../../server/src/core/entry.js";
import { type HostRow, type Journal, JournalError } from "../../server/src/journal/port.js";

interface HeldAppend {
  readonly sessionId: string;
  forward(): void;
  reject(error: Error): void;
}

/**
 * A real journal behind a switch. Appends are let through, held back undecided, made unheard, or refused as a full disk
 * refuses them. Appends of a session keep their order, and fall together, as the port says.
 */
export class SwitchedJournal implements Journal {
  readonly #journal: Journal;
  #appends: "open" | "held" | "full" | "muted" = "open";
  #held: HeldAppend[] = [];
  #dead = false;
  #underway = 0;
  #asked = 0;

  constructor(journal: Journal) {
    this.#journal = journal;
  }

  /** Requests that the journal has not answered, held ones apart. */
  get underway(): number {
    return this.#underway;
  }

  /** Requests so far. */
  get asked(): number {
    return this.#asked;
  }

  get heldAppends(): number {
    return this.#held.length;
  }

  /** From now on appends are asked for and neither made nor refused. */
  hold(): void {
    this.#appends = "held";
  }

  /** Makes what was held, and everything after it. */
  release(): void {
    this.#appends = "open";
    for (const append of this.#held.splice(0)) append.forward();
  }

  /** Refuses what was held: the first of each session for want of space, those behind it because of the first. */
  refuseHeld(): void {
    this.#appends = "open";
    const failing = new Set<string>();
    for (const append of this.#held.splice(0)) {
      append.reject(failing.has(append.sessionId) ? new JournalError("sequence_conflict", "an earlier append was not made") : full());
      failing.add(append.sessionId);
    }
  }

  /** From now on appends are made and nobody hears of it: what a crash right after a commit leaves. */
  muteAppends(): void {
    this.#appends = "muted";
  }

  /** From now on the disk is full. */
  fill(): void {
    this.#appends = "full";
  }

  /** Nothing that was asked for or will be asked for is ever answered. */
  die(): void {
    this.#dead = true;
    this.#held = [];
    this.#underway = 0;
  }

  append(sessionId: string, expectedNext: number, entries: readonly Entry[]): Promise<void> {
    this.#asked++;
    if (this.#dead) return new Promise(() => undefined);
    if (this.#appends === "full") return Promise.reject(full());
    const make = (): Promise<void> => this.#track(() => this.#journal.append(sessionId, expectedNext, entries));
    if (this.#appends === "open") return make();
    if (this.#appends === "muted") return make().then(() => new Promise<void>(() => undefined));
    return new Promise((resolve, reject) => {
      this.#held.push({ sessionId, forward: () => make().then(resolve, reject), reject });
    });
  }

  read: Journal["read"] = (...from) => this.#track(() => this.#journal.read(...from));
  watch: Journal["watch"] = (...from) => this.#journal.watch(...from);
  findSession: Journal["findSession"] = (...by) => this.#track(() => this.#journal.findSession(...by));
  findSessionByRequestId: Journal["findSessionByRequestId"] = (...by) => this.#track(() => this.#journal.findSessionByRequestId(...by));
  listSessions: Journal["listSessions"] = (...by) => this.#track(() => this.#journal.listSessions(...by));
  deleteSession: Journal["deleteSession"] = (...by) => this.#track(() => this.#journal.deleteSession(...by));
  openCalls: Journal["openCalls"] = () => this.#track(() => this.#journal.openCalls());
  findCall: Journal["findCall"] = (...by) => this.#track(() => this.#journal.findCall(...by));
  listCalls: Journal["listCalls"] = (...by) => this.#track(() => this.#journal.listCalls(...by));
  findEmit: Journal["findEmit"] = (...by) => this.#track(() => this.#journal.findEmit(...by));
  putHost = (host: HostRow): Promise<HostRow> => this.#track(() => this.#journal.putHost(host));
  findHost: Journal["findHost"] = (...by) => this.#track(() => this.#journal.findHost(...by));
  findHostByToken: Journal["findHostByToken"] = (...by) => this.#track(() => this.#journal.findHostByToken(...by));
  listHosts: Journal["listHosts"] = (...by) => this.#track(() => this.#journal.listHosts(...by));
  deleteHost: Journal["deleteHost"] = (...by) => this.#track(() => this.#journal.deleteHost(...by));

  get flushCount(): number {
    return this.#journal.flushCount;
  }

  close(): Promise<void> {
    return this.#journal.close();
  }

  /** The dead answer nobody: what was underway when the process died is heard of no more. */
  #track<T>(ask: () => Promise<T>): Promise<T> {
    this.#asked++;
    if (this.#dead) return new Promise(() => undefined);
    this.#underway++;
    return new Promise((resolve, reject) => {
      const answered = (answer: () => void): void => {
        if (this.#dead) return;
        this.#underway--;
        answer();
      };
      ask().then(
        (value) => answered(() => resolve(value)),
        (error: unknown) => answered(() => reject(error)),
      );
    });
  }
}

function full(): JournalError {
  return new JournalError("journal_full", "the disk is full");
}
