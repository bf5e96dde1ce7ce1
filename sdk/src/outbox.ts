/**
 * Finished outcomes in a file, so that they survive the process that made them.
 *
 * 1. `save` resolves when the outcome is flushed to the disk, or when it is known, and said, that it cannot be. It never
 *    rejects: an outcome that cannot be kept is reported all the same.
 * 2. What was flushed stays in the file until it was answered. An answer need not be flushed: what is reported twice is
 *    recorded once.
 * 3. Writing goes on behind the last sound byte only. After any failure the whole file is written anew beside the old
 *    one and takes its place when it is flushed; the old one is never changed, and nothing is trusted that a failed
 *    flush may have lost.
 * 4. Damage is set aside under a name that says so, before anything is written. Every outcome whose checksum holds is kept.
 * 5. One live process per file (outbox-lock.ts). Only the host whose calls they are opens it.
 * 6. The file is at most twice as long as what waits in it, or a megabyte.
 */
import { copyFile, type FileHandle, link, mkdir, open, readFile, realpath, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { BrainError, isBrainError, thrownMessage } from "./errors.js";
import { answeredLine, type CallName, callKey, entryLine, FIRST_LINE, type OutboxEntry, readOutbox } from "./outbox-lines.js";
import { lockOutbox, type OutboxLock } from "./outbox-lock.js";

/** Up to this size dead lines are left where they are. */
const DEAD_BYTES_MAX = 1024 * 1024;
/** What a disk says that has no room, now or for this user. */
const NO_ROOM: ReadonlySet<unknown> = new Set(["ENOSPC", "EDQUOT"]);

export interface OutboxOptions {
  readonly path: string;
  /** The host that is to report what is in it. */
  readonly hostId: string;
  readonly log: (line: string) => void;
}

interface Waiting {
  readonly line: Buffer;
  /** Whether it is on the disk. */
  isSaved: boolean;
}

interface Write {
  /** The call it is about. */
  readonly key: string;
  readonly line: Buffer;
  /** Called when it is flushed, or cannot be; absent where nobody waits for that. */
  readonly settled?: () => void;
}

export class Outbox {
  /** What an earlier process could not report, oldest first. */
  readonly found: readonly OutboxEntry[];
  readonly #path: string;
  readonly #log: (line: string) => void;
  readonly #lock: OutboxLock;
  readonly #waiting = new Map<string, Waiting>();
  #writes: Write[] = [];
  #writing: Promise<void> | undefined;
  #file: FileHandle | undefined;
  #fileBytes = 0;
  /** The file has to be written anew before anything can be added to it. */
  #isBroken = true;
  #hasSaidSo = false;

  private constructor({ path, log }: OutboxOptions, lock: OutboxLock, found: readonly OutboxEntry[]) {
    this.#path = path;
    this.#log = log;
    this.#lock = lock;
    this.found = found;
    // Of these the file is known to have every one.
    for (const entry of found) this.#waiting.set(callKey(entry), { line: entryLine(entry), isSaved: true });
  }

  /** Rejects with `outbox_in_use`, or with `outbox_unusable`, which says why. */
  static async open(options: OutboxOptions): Promise<Outbox> {
    const path = await settledPath(options.path);
    const lock = await lockOutbox(path).catch((thrown: unknown) => {
      throw unusable(path, thrown);
    });
    try {
      const found = await readExisting({ ...options, path });
      const outbox = new Outbox({ ...options, path }, lock, found);
      await outbox.#begin();
      return outbox;
    } catch (thrown) {
      await lock.release();
      throw unusable(path, thrown);
    }
  }

  /** Keeps an outcome until it is `answered`. */
  save(entry: OutboxEntry): Promise<void> {
    const key = callKey(entry);
    let line: Buffer;
    try {
      line = entryLine(entry);
    } catch (thrown) {
      this.#log(`an outcome of Tool "${entry.tool}" cannot be kept in the outbox, and is reported from memory: ${thrownMessage(thrown)}`);
      return Promise.resolve();
    }
    this.#waiting.set(key, { line, isSaved: false });
    return new Promise((settled) => this.#write({ key, line, settled }));
  }

  /** The outcome was answered, and is not needed any more. */
  answered(call: CallName): void {
    const key = callKey(call);
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) return;
    this.#waiting.delete(key);
    if (waiting.isSaved) this.#write({ key, line: answeredLine(call) });
  }

  /** How many outcomes are on the disk and not answered. */
  get savedCount(): number {
    let count = 0;
    for (const { isSaved } of this.#waiting.values()) if (isSaved) count++;
    return count;
  }

  /** Lets the file go, to the next process. Nothing may be saved any more. */
  async close(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
    try {
      // All of it is dead; a short file is easier on whoever looks at it.
      if (this.#waiting.size === 0 && !this.#isBroken) await this.#file?.truncate(FIRST_LINE.length);
      await this.#file?.close();
    } catch (thrown) {
      this.#log(`the outbox ${this.#path} could not be closed: ${thrownMessage(thrown)}`);
    }
    await this.#lock.release();
  }

  // --- Writing -----------------------------------------------------------------------------------------------------

  /** Finds out at the start whether the file can be written. A disk without room may have some later. */
  async #begin(): Promise<void> {
    try {
      await this.#writeAnew();
    } catch (thrown) {
      if (!NO_ROOM.has((thrown as { code?: unknown }).code)) throw thrown;
      this.#sayBroken(thrown);
    }
    const count = this.found.length;
    if (count > 0) {
      this.#log(
        `the outbox ${this.#path} holds ${outcomes(count)} that an earlier process had no answer to; reporting ${count === 1 ? "it" : "them"}`,
      );
    }
  }

  #write(write: Write): void {
    this.#writes.push(write);
    this.#writing ??= this.#writeAll();
  }

  /** One flush for whatever has come together meanwhile. */
  async #writeAll(): Promise<void> {
    // Lets everything in that finishes in this turn.
    await Promise.resolve();
    while (this.#writes.length > 0) {
      const batch = this.#writes;
      this.#writes = [];
      try {
        await this.#writeBatch(batch);
      } catch (thrown) {
        this.#isBroken = true;
        this.#sayBroken(thrown);
      }
      for (const { settled } of batch) settled?.();
    }
    this.#writing = undefined;
  }

  async #writeBatch(batch: readonly Write[]): Promise<void> {
    const isAwaited = batch.some(({ settled }) => settled !== undefined);
    if (this.#file === undefined || this.#isBroken || this.#isMostlyDead) {
      // Nobody needs room for an answer, and a disk that had none is not asked for that again and again.
      if (isAwaited || !this.#isBroken) await this.#writeAnew();
      return;
    }
    const lines = Buffer.concat(batch.map(({ line }) => line));
    const { bytesWritten } = await this.#file.write(lines, 0, lines.length, this.#fileBytes);
    if (bytesWritten < lines.length) throw new Error(`only ${bytesWritten} of ${lines.length} bytes were written; the disk may be full`);
    this.#fileBytes += lines.length;
    if (!isAwaited) return;
    const [, { ino }, atPath] = await Promise.all([this.#file.datasync(), this.#file.stat(), stat(this.#path).catch(() => undefined)]);
    // Somebody has removed or replaced it: what was just flushed is where nobody will look.
    if (atPath?.ino !== ino) return await this.#writeAnew();
    this.#markSaved(batch.map(({ key }) => key));
  }

  get #isMostlyDead(): boolean {
    if (this.#fileBytes <= DEAD_BYTES_MAX) return false;
    let waitingBytes = 0;
    for (const { line } of this.#waiting.values()) waitingBytes += line.length;
    return this.#fileBytes > 2 * waitingBytes;
  }

  #markSaved(keys: readonly string[]): void {
    for (const key of keys) {
      const waiting = this.#waiting.get(key);
      if (waiting !== undefined) waiting.isSaved = true;
    }
  }

  /** Everything that waits, and nothing else, in a new file that takes the place of the old one. */
  async #writeAnew(): Promise<void> {
    const newPath = `${this.#path}.new`;
    const keys = [...this.#waiting.keys()];
    const content = Buffer.concat([Buffer.from(FIRST_LINE), ...Array.from(this.#waiting.values(), ({ line }) => line)]);
    await rm(newPath, { force: true });
    const file = await open(newPath, "wx", 0o600);
    try {
      await file.writeFile(content);
      await file.sync();
      await rename(newPath, this.#path);
    } catch (thrown) {
      await file.close().catch(() => undefined);
      await rm(newPath, { force: true }).catch(() => undefined);
      throw thrown;
    }
    const old = this.#file;
    this.#file = file;
    this.#fileBytes = content.length;
    await old?.close().catch(() => undefined);
    await syncDirectory(dirname(this.#path));
    this.#markSaved(keys);
    this.#isBroken = false;
    if (this.#hasSaidSo) this.#log(`the outbox ${this.#path} can be written again, and has every outcome that waits`);
    this.#hasSaidSo = false;
  }

  #sayBroken(thrown: unknown): void {
    if (this.#hasSaidSo) return;
    this.#hasSaidSo = true;
    const why = thrownMessage(thrown);
    this.#log(
      `the outbox ${this.#path} cannot be written (${why}): outcomes are reported from memory meanwhile, and would be lost with this process; make room, and it is used again`,
    );
  }
}

/** Absolute and without symbolic links: one name for one file. Makes the folders it lies in. */
async function settledPath(given: string): Promise<string> {
  const path = resolve(given);
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const there = join(await realpath(dirname(path)), basename(path));
    return await realpath(there).catch(() => there);
  } catch (thrown) {
    throw unusable(path, thrown);
  }
}

async function readExisting({ path, hostId, log }: OutboxOptions): Promise<readonly OutboxEntry[]> {
  let bytes: Buffer;
  try {
    bytes = await readFile(path);
  } catch (thrown) {
    if ((thrown as { code?: unknown }).code === "ENOENT") return [];
    throw thrown;
  }
  const { isOutbox, entries, tornBytes, damagedLines } = readOutbox(bytes);
  if (!isOutbox) {
    throw new BrainError("outbox_unusable", `${path} is no outbox; nothing in it was changed. Name a file that holds nothing else`, {
      path,
    });
  }
  const foreign = entries.find((entry) => entry.hostId !== hostId);
  if (foreign !== undefined) {
    const message = `The outbox ${path} holds outcomes of host ${foreign.hostId}, which host ${hostId} cannot report; give that host's credentials, or name another file`;
    throw new BrainError("outbox_unusable", message, { path });
  }
  if (damagedLines > 0) {
    const aside = await setAside(path);
    log(`the outbox ${path} is damaged in ${damagedLines} lines: it is kept as ${aside}, and ${outcomes(entries.length)} in it are whole`);
  }
  if (tornBytes > 0) {
    log(`the outbox ${path} ended in ${tornBytes} bytes of an outcome whose process ended while it was written; they are dropped`);
  }
  return entries;
}

/** The damaged file under another name, complete before it is replaced. */
async function setAside(path: string): Promise<string> {
  const aside = `${path}.corrupt-${new Date().toISOString().replaceAll(":", "-")}`;
  try {
    await link(path, aside);
  } catch {
    // There are file systems without links.
    await copyFile(path, aside);
  }
  return aside;
}

/** Without it a new or renamed file may be gone after a power failure. */
async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

function unusable(path: string, thrown: unknown): BrainError {
  if (isBrainError(thrown)) return thrown;
  const message = `The outbox ${path} cannot be used: ${thrownMessage(thrown)}; make it a file that this process may write, or name another`;
  return new BrainError("outbox_unusable", message, { path }, thrown);
}

function outcomes(count: number): string {
  return count === 1 ? "1 outcome" : `${count} outcomes`;
}
