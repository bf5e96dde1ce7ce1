import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmodSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import Database from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { entry, JOURNAL_LIMITS, ManualClock, temporaryDirectory } from "../../../../tests/support/journal-fixture.js";
import { checkJournal } from "../check-journal.js";
import type { Journal } from "../port.js";
import { openSqliteJournal, type SqliteJournalOptions } from "./open-journal.js";

const PROGRAM = fileURLToPath(new URL("../../../../tests/support/append-until-stopped.mjs", import.meta.url));

let root: { path: string; remove(): void };
let clock: ManualClock;
beforeEach(() => {
  root = temporaryDirectory();
  clock = new ManualClock();
});
afterEach(() => root.remove());

const at = (name: string): string => `${root.path}/${name}`;
const journalFile = (name: string): string => `${at(name)}/journal.sqlite3`;
const open = (name: string, options: Partial<SqliteJournalOptions> = {}): Promise<Journal> =>
  openSqliteJournal({
    directory: at(name),
    clock,
    limits: JOURNAL_LIMITS,
    mode: "inline",
    onFatal: (error) => {
      throw error;
    },
    ...options,
  });

/** A closed journal with a session of some hundred kilobytes. */
async function makeJournal(name: string, sessionId = "s1"): Promise<void> {
  const journal = await open(name);
  await fill(journal, sessionId);
  await journal.close();
}
async function fill(journal: Journal, sessionId: string): Promise<void> {
  await journal.append(sessionId, 1, [entry.sessionCreated(sessionId)]);
  for (let n = 2; n < 60; n += 1)
    await journal.append(sessionId, n, [entry.started(`c${n}`, JSON.stringify(randomBytes(3000).toString("hex")))]);
}
/** What a kill would leave of a journal that is open: the file and its log as they are now. */
function copyAsKilled(from: string, to: string): void {
  mkdirSync(at(to), { recursive: true });
  for (const suffix of ["", "-wal"]) cpSync(`${journalFile(from)}${suffix}`, `${journalFile(to)}${suffix}`);
}
const lastSequence = async (journal: Journal, sessionId: string): Promise<number | undefined> =>
  (await journal.findSession(sessionId))?.lastSequence;

describe("opening a journal", () => {
  test("makes a directory that only its owner may enter, with a file that only its owner may read", async () => {
    await (await open("a/b")).close();
    expect(statSync(at("a/b")).mode & 0o777).toBe(0o700);
    expect(statSync(journalFile("a/b")).mode & 0o777).toBe(0o600);
    expect(readdirSync(at("a/b")).sort()).toEqual(["journal.sqlite3", "lock.sqlite3"]);
  });

  test("removes what a start that was cut off had begun, and starts empty", async () => {
    mkdirSync(at("a"));
    writeFileSync(`${journalFile("a")}.new`, randomBytes(5000));
    writeFileSync(`${journalFile("a")}.new-journal`, randomBytes(5000));
    const journal = await open("a");
    expect(await journal.openCalls()).toEqual([]);
    await journal.close();
    expect(readdirSync(at("a")).sort()).toEqual(["journal.sqlite3", "lock.sqlite3"]);
  });

  test.each(["inline", "thread"] as const)("takes up what a killed server left in its log, writer %s", async (mode) => {
    const journal = await open("a", { mode });
    await fill(journal, "s1");
    copyAsKilled("a", "b");
    await journal.close();
    const reopened = await open("b", { mode });
    expect(await lastSequence(reopened, "s1")).toBe(59);
    expect((await reopened.openCalls()).length).toBe(58);
    await reopened.close();
    expect(checkJournal(journalFile("b"))).toEqual([]);
  });

  test("never mistakes its own log for another's, whatever was checkpointed when the server was killed", async () => {
    await makeJournal("round0");
    let next = 60;
    for (let round = 0; round < 24; round += 1) {
      const name = `round${round}`;
      const journal = await open(name);
      expect(await lastSequence(journal, "s1")).toBe(next - 1);
      const step = async (): Promise<void> => {
        await journal.append("s1", next, [entry.started(`c${next}`)]);
        next += 1;
      };
      const checkpoint = async (): Promise<void> => {
        clock.advance(10_000);
        // The checkpoint takes one turn of the writer; these take the next ones.
        for (let turn = 0; turn < 3; turn += 1) await journal.deleteHost("nobody");
      };
      const reader = new Database(journalFile(name), { readonly: true, timeout: 0 });
      const outsider = new Database(journalFile(name), { timeout: 0 });
      await step();
      if (round % 2 === 1) await checkpoint();
      if (round % 3 === 1) await step();
      // An outsider that reads keeps a checkpoint from being complete, one that checkpoints does so unasked.
      if (round % 4 === 2) reader.exec("BEGIN; SELECT * FROM seal");
      if (round % 5 === 3) outsider.pragma("wal_checkpoint(RESTART)");
      if (round % 3 !== 0) await step();
      if (round % 2 === 0) await checkpoint();
      if (round % 6 === 5) outsider.pragma("wal_checkpoint(PASSIVE)");
      if (round % 4 !== 0) await step();
      copyAsKilled(name, `round${round + 1}`);
      reader.close();
      outsider.close();
      await journal.close();
      rmSync(at(name), { recursive: true });
    }
    expect(checkJournal(journalFile("round24"))).toEqual([]);
  });

  test("waits for a process that is writing, and says so when that takes too long", async () => {
    await makeJournal("a");
    const outsider = new Database(journalFile("a"), { timeout: 0 });
    outsider.exec("BEGIN IMMEDIATE");
    let armed = clock.nextTimer();
    const waiting = open("a");
    await armed;
    clock.advance(1000);
    armed = clock.nextTimer();
    outsider.exec("ROLLBACK");
    clock.advance(50);
    const journal = await waiting;
    await journal.close();
    outsider.exec("BEGIN IMMEDIATE");
    armed = clock.nextTimer();
    const refused = open("a");
    await armed;
    clock.advance(30_000);
    await expect(refused).rejects.toThrow(`the journal file ${journalFile("a")} has been held by another process for 30000 ms`);
    outsider.close();
  });
});

describe("the lock of a data directory", () => {
  test("refuses a second server in this process, naming the directory, and is free after close", async () => {
    const journal = await open("a");
    await expect(open("a")).rejects.toThrow(`the data directory ${at("a")} is in use by another Brain server`);
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    await journal.close();
    await (await open("a")).close();
  });

  test.each(["inline", "thread"] as const)(
    "refuses a second process, and a kill -9 leaves neither a lock nor a gap, writer %s",
    async (mode) => {
      const acknowledged = new Map<string, number>();
      for (const acknowledgements of [1, 40, 333, 700]) {
        const child = spawn(process.execPath, [PROGRAM, at("a"), mode, "2000"]);
        const read = readLines(child, (line) => {
          const [, session, sequence] = /^made (\S+) (\d+)$/.exec(line) ?? [];
          if (session !== undefined) acknowledged.set(session, Number(sequence));
        });
        await read.atLeast(acknowledgements);
        if (acknowledgements === 40) {
          const second = spawn(process.execPath, [PROGRAM, at("a"), mode, "2000"]);
          const { code, errors } = await end(second);
          expect([code, errors]).toEqual([
            2,
            `the data directory ${at("a")} is in use by another Brain server; stop that one, or give this one another --data-dir\n`,
          ]);
          await expect(open("a")).rejects.toThrow("is in use by another Brain server");
        }
        child.kill("SIGKILL");
        await end(child);
        const journal = await open("a", { mode });
        for (const [session, sequence] of acknowledged) {
          expect(await lastSequence(journal, session)).toBeGreaterThanOrEqual(sequence);
        }
        await journal.close();
        expect(checkJournal(journalFile("a"))).toEqual([]);
      }
      expect(acknowledged.size).toBeGreaterThan(8);
    },
  );
});

describe("a file that is refused is left as it is", () => {
  /** Refused within the bound, by one line that names the file; nothing of it has changed. */
  async function expectRefusal(name: string, message: RegExp): Promise<void> {
    const files = ["", "-wal"].map((suffix) => `${journalFile(name)}${suffix}`).filter((path) => existsSync(path));
    const before = files.map((path) => readFileSync(path));
    for (const mode of ["inline", "thread"] as const) {
      const error = await open(name, { mode }).then(
        () => undefined,
        (refusal: unknown) => refusal,
      );
      expect(error).toMatchObject({ name: "JournalFileError", message: expect.stringMatching(message) });
      expect(error).toMatchObject({ message: expect.stringContaining(at(name)) });
      expect(String(error)).not.toContain("\n");
    }
    expect(files.map((path, index) => readFileSync(path).equals(before[index] ?? Buffer.alloc(0)))).toEqual(files.map(() => true));
  }

  test.each([
    ["random bytes", randomBytes(100_000)],
    ["a line of text", Buffer.from("hello\n")],
    ["nothing", Buffer.alloc(0)],
  ])("when it holds %s", async (_, bytes) => {
    mkdirSync(at("a"));
    writeFileSync(journalFile("a"), bytes);
    await expectRefusal("a", /is not a Brain journal; it was left as it is/);
  });

  test("when it is another program's database", async () => {
    mkdirSync(at("a"));
    const db = new Database(journalFile("a"));
    db.exec("CREATE TABLE t (x)");
    db.close();
    await expectRefusal("a", /is not a Brain journal but another database/);
  });

  test.each([0.3, 0.5, 0.77])("when 4 KiB in its middle were overwritten, at %f of its length", async (part) => {
    await makeJournal("a");
    const bytes = readFileSync(journalFile("a"));
    randomBytes(4096).copy(bytes, Math.floor(bytes.length * part));
    writeFileSync(journalFile("a"), bytes);
    await expectRefusal("a", /is damaged \(.+\); it was left as it is/);
  });

  test("when a file that is checked while it serves has 4 KiB overwritten: the fatal message names it", async () => {
    await makeJournal("a");
    const bytes = readFileSync(journalFile("a"));
    randomBytes(4096).copy(bytes, Math.floor(bytes.length * 0.5));
    writeFileSync(journalFile("a"), bytes);
    const limits = { ...JOURNAL_LIMITS, journalQuickCheckBytes: 0 };
    let damage: (error: Error) => void = () => undefined;
    const damaged = new Promise<Error>((resolve) => {
      damage = resolve;
    });
    const journal = await open("a", { limits, onFatal: damage });
    clock.advance(JOURNAL_LIMITS.journalThreadCheckAfterMs);
    expect((await damaged).message).toContain(`the journal file ${journalFile("a")} is damaged`);
    await journal.close();
  });

  test("when it was cut off", async () => {
    await makeJournal("a");
    writeFileSync(journalFile("a"), readFileSync(journalFile("a")).subarray(0, 40_000));
    await expectRefusal("a", /is damaged/);
  });

  test("when a table or a guard of it is missing", async () => {
    await makeJournal("a");
    const db = new Database(journalFile("a"));
    db.exec("DROP TRIGGER call_ends_once");
    db.close();
    await expectRefusal("a", /is damaged \(its schema lacks trigger call_ends_once\)/);
  });

  test("when its schema is newer", async () => {
    await makeJournal("a");
    const db = new Database(journalFile("a"));
    db.pragma("user_version = 99");
    db.close();
    await expectRefusal("a", /was written by a newer Brain \(schema version 99, this one knows up to \d+\)/);
  });

  test("when the log beside it is another journal's", async () => {
    await makeJournal("a");
    const other = await open("b");
    await fill(other, "s2");
    cpSync(`${journalFile("b")}-wal`, `${journalFile("a")}-wal`);
    await other.close();
    await expectRefusal("a", /the log .*-wal does not belong to the journal file/);
  });

  test("when the log beside it is another program's", async () => {
    await makeJournal("a");
    const db = new Database(at("other.sqlite3"));
    db.pragma("journal_mode = WAL");
    db.exec("CREATE TABLE t (x)");
    db.pragma("wal_checkpoint(TRUNCATE)");
    for (let n = 0; n < 50; n += 1) db.prepare("INSERT INTO t VALUES (?)").run(randomBytes(1000));
    cpSync(at("other.sqlite3-wal"), `${journalFile("a")}-wal`);
    db.close();
    await expectRefusal("a", /is damaged|does not belong/);
  });

  test("when the log beside it is its own of an earlier time, or it is an earlier copy beside a later log", async () => {
    await makeJournal("a");
    const early = await open("a");
    await early.append("s2", 1, [entry.sessionCreated("s2")]);
    copyAsKilled("a", "early");
    await early.close();
    const late = await open("a");
    await late.append("s3", 1, [entry.sessionCreated("s3")]);
    clock.advance(10_000);
    for (let turn = 0; turn < 3; turn += 1) await late.deleteHost("nobody");
    await late.append("s4", 1, [entry.sessionCreated("s4")]);
    copyAsKilled("a", "late");
    await late.close();
    for (const [name, file, log] of [
      ["mixed1", "late", "early"],
      ["mixed2", "early", "late"],
    ] as const) {
      mkdirSync(at(name));
      cpSync(journalFile(file), journalFile(name));
      cpSync(`${journalFile(log)}-wal`, `${journalFile(name)}-wal`);
      await expectRefusal(name, /the log .*-wal does not belong to the journal file/);
    }
  });

  test("when the file is missing beside its log, no empty journal is started in its place", async () => {
    const journal = await open("a");
    await fill(journal, "s1");
    mkdirSync(at("b"));
    cpSync(`${journalFile("a")}-wal`, `${journalFile("b")}-wal`);
    await journal.close();
    await expectRefusal("b", /is missing but its log .* is there/);
    expect(existsSync(journalFile("b"))).toBe(false);
  });

  test("when the folder cannot be written", async () => {
    await makeJournal("a");
    const before = readFileSync(journalFile("a"));
    // For root no folder is read-only: the process that tries is nobody then.
    const asNobody = process.getuid?.() === 0 ? ["as-nobody"] : [];
    chmodSync(root.path, 0o755);
    chmodSync(journalFile("a"), 0o644);
    chmodSync(at("a"), 0o555);
    const { code, errors } = await end(spawn(process.execPath, [PROGRAM, at("a"), "inline", "10", ...asNobody]));
    chmodSync(at("a"), 0o755);
    expect([code, errors]).toEqual([
      2,
      expect.stringMatching(
        /^the data directory .*\/a cannot be written \(.*\); make it writable for this user, or give another --data-dir\n$/,
      ),
    ]);
    expect(readFileSync(journalFile("a")).equals(before)).toBe(true);
  });

  test("when the directory is a file", async () => {
    writeFileSync(at("a"), "x");
    await expect(open("a")).rejects.toThrow(/^the data directory .*\/a cannot be used \(EEXIST/);
  });
});

/** Lines of a child's stdout; `atLeast(n)` resolves when n have come, and rejects when it ends before. */
function readLines(child: ChildProcess, take: (line: string) => void): { atLeast(lines: number): Promise<void> } {
  let rest = "";
  let count = 0;
  let wanted = Number.POSITIVE_INFINITY;
  let reached: () => void = () => {};
  child.stdout?.on("data", (chunk: Buffer) => {
    const lines = (rest + chunk.toString()).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) take(line);
    count += lines.length;
    if (count >= wanted) reached();
  });
  return {
    atLeast: (lines) =>
      new Promise((resolve, reject) => {
        wanted = lines;
        reached = resolve;
        if (count >= lines) resolve();
        child.once("close", (code) => reject(new Error(`the process ended with ${code} after ${count} lines`)));
      }),
  };
}

async function end(child: ChildProcess): Promise<{ code: number | null; errors: string }> {
  let errors = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    errors += chunk.toString();
  });
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { code, errors };
}
