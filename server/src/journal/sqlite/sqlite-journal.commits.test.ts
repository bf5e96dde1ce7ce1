import { spawn } from "node:child_process";
import { statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import Database from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { entry, JOURNAL_LIMITS, ManualClock, settled, temporaryDirectory } from "../../../../tests/support/journal-fixture.js";
import { checkJournal } from "../check-journal.js";
import type { Journal } from "../port.js";
import { openSqliteJournal, type SqliteJournalOptions } from "./open-journal.js";

describe.each(["inline", "thread"] as const)("commits with the writer %s", (mode) => {
  let directory: { path: string; remove(): void };
  let clock: ManualClock;
  let journal: Journal;
  let fatal: Error[];
  const file = (): string => `${directory.path}/journal.sqlite3`;
  const open = (options: Partial<SqliteJournalOptions> = {}): Promise<Journal> =>
    openSqliteJournal({
      directory: directory.path,
      clock,
      limits: JOURNAL_LIMITS,
      mode,
      onFatal: (error) => fatal.push(error),
      ...options,
    });
  const sequences = async (sessionId: string): Promise<number[]> =>
    (await journal.read(sessionId, 0, { records: 10_000, bytes: 1e9 })).map((record) => record.sequence);
  const countTo = (last: number): number[] => Array.from({ length: last }, (_, index) => index + 1);
  beforeEach(async () => {
    directory = temporaryDirectory();
    clock = new ManualClock();
    fatal = [];
    // Checkpoints only where a test asks for them: their timer is none that the tests of waiting want to see.
    journal = await open({ limits: { ...JOURNAL_LIMITS, journalIdleMs: 3_600_000 } });
  });
  afterEach(async () => {
    await journal.close();
    expect(checkJournal(file())).toEqual([]);
    expect(fatal).toEqual([]);
    directory.remove();
  });

  test("one append at a time is one flush each", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    expect(journal.flushCount).toBe(1);
    for (let call = 0; call < 10; call += 1) {
      await journal.append("s1", 2 + call * 2, [entry.started(`c${call}`)]);
      await journal.append("s1", 3 + call * 2, [entry.ended(2 + call * 2)]);
    }
    expect(journal.flushCount).toBe(21);
  });

  test("what changes nothing is no flush", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    await Promise.all([
      journal.deleteHost("nobody"),
      journal.deleteSession("nobody"),
      settled(journal.append("s1", 9, [entry.started("c1")])),
    ]);
    expect(journal.flushCount).toBe(1);
  });

  test("a hundred appends of as many sessions that wait together share a flush", async () => {
    await Promise.all(countTo(100).map((n) => journal.append(`s${n}`, 1, [entry.sessionCreated(`s${n}`)])));
    expect(journal.flushCount).toBe(1);
  });

  test("a batch is bounded by appends and by bytes", async () => {
    await journal.close();
    journal = await open({ limits: { ...JOURNAL_LIMITS, journalBatchAppends: 10, journalBatchBytes: 100_000 } });
    await Promise.all(countTo(100).map((n) => journal.append(`s${n}`, 1, [entry.sessionCreated(`s${n}`)])));
    expect(journal.flushCount).toBe(10);
    const input = JSON.stringify("x".repeat(60_000));
    await Promise.all(countTo(5).map((n) => journal.append(`s${n}`, 2, [entry.started("c1", input)])));
    expect(journal.flushCount).toBe(15);
  });

  test("appends resolve in the order they were asked for, and a session's appends may be asked for ahead", async () => {
    const resolved: number[] = [];
    await Promise.all(
      countTo(50).map(async (sequence) => {
        await journal.append("s1", sequence, [sequence === 1 ? entry.sessionCreated("s1") : entry.started(`c${sequence}`)]);
        resolved.push(sequence);
      }),
    );
    expect(resolved).toEqual(countTo(50));
    expect(await sequences("s1")).toEqual(countTo(50));
  });

  test("a wrong expectedNext fails that append and all later ones of its session, the batch's others are made", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    await journal.append("s2", 1, [entry.sessionCreated("s2")]);
    const made = journal.append("s1", 2, [entry.started("c2")]);
    const wrong = journal.append("s1", 5, [entry.started("c5")]);
    // Would fit by chance, had the one before not failed.
    const later = journal.append("s1", 3, [entry.started("c3")]);
    const other = journal.append("s2", 2, [entry.started("c2")]);
    expect(await Promise.all([made, wrong, later, other].map(settled))).toEqual(["done", "sequence_conflict", "sequence_conflict", "done"]);
    expect(journal.flushCount).toBe(3);
    expect(await sequences("s1")).toEqual([1, 2]);
    expect(await sequences("s2")).toEqual([1, 2]);
  });

  test("what was made before a session's failure stays made when the batch has to be taken apart", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    await journal.append("s2", 1, [entry.sessionCreated("s2")]);
    const outcomes = [
      journal.append("s1", 2, [entry.started("c2")]),
      journal.append("s1", 7, [entry.started("c7")]),
      // Breaks a law, so that each append of the batch gets a transaction of its own.
      journal.append("s2", 2, [entry.ended(1)]),
      // Would fit, had the one before not failed.
      journal.append("s2", 2, [entry.started("c2")]),
      journal.append("s1", 3, [entry.started("c3")]),
    ];
    expect(await Promise.all(outcomes.map(settled))).toEqual([
      "done",
      "sequence_conflict",
      "AssertionFailed",
      "sequence_conflict",
      "sequence_conflict",
    ]);
    expect([await sequences("s1"), await sequences("s2")]).toEqual([[1, 2], [1]]);
  });

  test("what is asked for between a failure and its report fails too, and what is asked for after the report does not", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    const between: Promise<string>[] = [];
    const order: string[] = [];
    const first = journal.append("s2", 1, [entry.sessionCreated("s2")]).then(() => {
      // Runs in the turn in which the failure below is settled, but before that is seen.
      order.push("other resolved");
      between.push(settled(journal.append("s1", 2, [entry.started("between")])));
    });
    const failing = journal.append("s1", 9, [entry.started("c9")]).catch(() => {
      order.push("failure seen");
      return journal.append("s1", 2, [entry.started("after")]);
    });
    await Promise.all([first, failing]);
    expect(order).toEqual(["other resolved", "failure seen"]);
    expect(await Promise.all(between)).toEqual(["sequence_conflict"]);
    expect((await journal.findCall("s1", { callSequence: 2 }))?.started.callId).toBe("after");
  });

  test("an append of an unknown session and one that does not begin with its creation are refused", async () => {
    expect(await settled(journal.append("s1", 1, [entry.started("c1")]))).toBe("session_not_found");
    expect(await settled(journal.append("s1", 2, [entry.sessionCreated("s1")]))).toBe("session_not_found");
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    expect(await settled(journal.append("s1", 1, [entry.sessionCreated("s1")]))).toBe("sequence_conflict");
    expect(await sequences("s1")).toEqual([1]);
  });

  test("an append that breaks a law is refused as a bug, alone, and leaves no trace", async () => {
    await journal.append("s1", 1, [
      entry.sessionCreated("s1"),
      entry.started("c1"),
      entry.event(2, "e1"),
      entry.ended(2),
      entry.started("c2"),
    ]);
    const next = 6;
    const broken = {
      "a second ending": entry.ended(2),
      "an ending of no call": entry.ended(4),
      "a second start with the call_id": entry.started("c1"),
      "a late outcome of an open call": entry.late(5),
      "an event of an ended call": entry.event(2, "e2"),
      "an event without emit_id of an ended call": entry.event(2, ""),
      "an event of no call": entry.event(77, "e2"),
      "a second creation": entry.sessionCreated("s1"),
    };
    for (const [what, wrong] of Object.entries(broken)) {
      const flushes = journal.flushCount;
      const other = journal.append("s2", flushes, [flushes === 1 ? entry.sessionCreated("s2") : entry.started(`c${flushes}`)]);
      // The lawful entry before it in the same append must not stay either.
      const outcome = await settled(journal.append("s1", next, [entry.event(5, "lawful"), wrong]));
      expect([what, outcome, await settled(other)]).toEqual([what, "AssertionFailed", "done"]);
    }
    expect(await sequences("s1")).toEqual([1, 2, 3, 4, 5]);
    expect(await journal.findEmit("s1", 5, "lawful")).toBeUndefined();
    await journal.append("s1", next, [entry.event(5, "e1"), entry.late(2)]);
    expect(await settled(journal.append("s1", 8, [entry.event(5, "e1")]))).toBe("AssertionFailed");
    expect(await settled(journal.append("s1", 8, [entry.late(2)]))).toBe("AssertionFailed");
    await journal.append("s1", 8, [entry.sessionEnded(), entry.ended(5)]);
    expect(await settled(journal.append("s1", 10, [entry.sessionEnded()]))).toBe("AssertionFailed");
  });

  test("an append without entries, at no sequence or with a record over its size is refused as a bug", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    for (const [expectedNext, entries] of [
      [2, []],
      [0, [entry.started("c1")]],
      [1.5, [entry.started("c1")]],
      [2 ** 32, [entry.started("c1")]],
      [2, [entry.started("c1", "x".repeat(3 * 1024 * 1024))]],
    ] as const) {
      expect(await settled(journal.append("s1", expectedNext, entries))).toBe("AssertionFailed");
    }
    await journal.append("s1", 2, [entry.started("c1", "x".repeat(3 * 1024 * 1024 - 200))]);
    expect(await sequences("s1")).toEqual([1, 2]);
  });

  test("a full disk refuses what does not fit, makes what does, and the journal works again when there is room", async () => {
    await journal.append("s0", 1, [entry.sessionCreated("s0"), ...countTo(4).map((n) => entry.started(`c${n}`, "x".repeat(100_000)))]);
    await journal.close();
    const witness = new Database(file(), { readonly: true });
    const pages = witness.pragma("page_count", { simple: true }) as number;
    witness.close();
    journal = await open({ maxPages: pages + 20 });
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    const big = "x".repeat(500_000);
    const outcomes = await Promise.all([
      settled(journal.append("s2", 1, [entry.sessionCreated("s2")])),
      settled(journal.append("s1", 2, [entry.started("big", big)])),
      settled(journal.append("s1", 3, [entry.started("later")])),
      settled(journal.append("s2", 2, [entry.started("small")])),
    ]);
    expect(outcomes).toEqual(["done", "journal_full", "sequence_conflict", "done"]);
    expect(await sequences("s1")).toEqual([1]);
    await expect(journal.append("s1", 2, [entry.started("big", big)])).rejects.toThrow(file());
    await journal.deleteSession("s0");
    // The removal's steps ride along with these turns of the writer.
    let outcome = "";
    for (let turn = 0; turn < 20 && outcome !== "done"; turn += 1) {
      outcome = await settled(journal.append("s1", 2, [entry.started("big", "x".repeat(300_000))]));
    }
    expect(outcome).toBe("done");
    expect(await sequences("s1")).toEqual([1, 2]);
  });

  test("while another process writes, appends wait and keep their order, and reads go on", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    const outsider = new Database(file(), { timeout: 0 });
    outsider.exec("BEGIN IMMEDIATE");
    const armed = clock.nextTimer();
    const appends = countTo(3).map((n) => settled(journal.append("s1", n + 1, [entry.started(`c${n}`)])));
    // Two more while the first three are with the writer (in a thread: on their way back).
    await new Promise((resolve) => setImmediate(resolve));
    appends.push(...[4, 5].map((n) => settled(journal.append("s1", n + 1, [entry.started(`c${n}`)]))));
    expect(await armed).toBe(5);
    expect(await sequences("s1")).toEqual([1]);
    const delays: number[] = [];
    let last = 5;
    for (let waited = 0; waited < 2000; waited += last) {
      const next = clock.nextTimer();
      clock.advance(last);
      last = await next;
      delays.push(last);
    }
    expect(delays.slice(0, 6)).toEqual([10, 20, 40, 80, 100, 100]);
    const late = settled(journal.append("s1", 7, [entry.started("late")]));
    outsider.exec("ROLLBACK");
    outsider.close();
    clock.advance(100);
    expect(await Promise.all([...appends, late])).toEqual(Array.from({ length: 6 }, () => "done"));
    expect(await sequences("s1")).toEqual(countTo(7));
  });

  test("after the longest wait for another process an append is refused and nothing of it is ever made", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    const outsider = new Database(file(), { timeout: 0 });
    outsider.exec("BEGIN IMMEDIATE");
    let armed = clock.nextTimer();
    const first = settled(journal.append("s1", 2, [entry.started("c1")]));
    const second = settled(journal.append("s1", 3, [entry.started("c2")]));
    const other = settled(journal.deleteHost("h1"));
    await armed;
    armed = clock.nextTimer();
    clock.advance(29_000);
    await armed;
    const young = settled(journal.append("s2", 1, [entry.sessionCreated("s2")]));
    armed = clock.nextTimer();
    clock.advance(1000);
    expect(await Promise.all([first, second, other])).toEqual(["journal_unavailable", "sequence_conflict", "journal_unavailable"]);
    const delay = await armed;
    outsider.exec("ROLLBACK");
    outsider.close();
    clock.advance(delay);
    expect(await young).toBe("done");
    expect(await sequences("s1")).toEqual([1]);
    await journal.append("s1", 2, [entry.started("c3")]);
  });

  test("what another connection wrote is seen by the next append", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    const outsider = new Database(file(), { timeout: 0 });
    outsider.prepare("INSERT INTO records SELECT session, 2, commit_time, 'session_ended', ? FROM records").run(Buffer.from([0x5a, 0]));
    outsider.prepare("UPDATE sessions SET end_sequence = 2").run();
    outsider.close();
    expect(await settled(journal.append("s1", 2, [entry.started("c1")]))).toBe("sequence_conflict");
    await journal.append("s2", 1, [entry.sessionCreated("s2")]);
  });

  test("when nothing is asked for the log is checkpointed and used again, not grown", async () => {
    const log = (): number => {
      const witness = new Database(file(), { readonly: true });
      const [row] = witness.pragma("wal_checkpoint(NOOP)") as { log: number }[];
      witness.close();
      return row?.log ?? -1;
    };
    await journal.close();
    journal = await open();
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    const frames: number[] = [];
    for (let round = 0; round < 5; round += 1) {
      for (let n = 0; n < 20; n += 1) await journal.append("s1", 2 + round * 20 + n, [entry.started(`c${round}-${n}`)]);
      frames.push(log());
      // The checkpoint takes a turn of the writer; a delete of nothing takes the one after it.
      clock.advance(200);
      await journal.deleteHost("nobody");
      await journal.deleteHost("nobody");
    }
    expect(Math.max(...frames)).toBeLessThan(2.5 * (frames[1] ?? 0));
    expect(checkJournal(file())).toEqual([]);
  });

  test("under steady writing the log stays near its bound, and what a held reader made it grow is given back when that leaves", async () => {
    await journal.close();
    journal = await open({ limits: { ...JOURNAL_LIMITS, journalLogBytes: 256 * 1024, journalLogFileBytes: 512 * 1024 } });
    const logBytes = (): number => statSync(`${file()}-wal`).size;
    const input = JSON.stringify("x".repeat(20_000));
    let next = 2;
    const write = async (calls: number): Promise<void> => {
      for (const last = next + calls; next < last; next += 1) await journal.append("s1", next, [entry.started(`c${next}`, input)]);
    };
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    await write(100);
    expect(logBytes()).toBeLessThan(512 * 1024);
    const reader = new Database(file(), { readonly: true });
    reader.exec("BEGIN; SELECT * FROM seal");
    await write(100);
    expect(logBytes()).toBeGreaterThan(2_000_000);
    reader.close();
    // Looks again until the reader is gone, then cuts the log back.
    for (let turn = 0; turn < 10 && logBytes() > 512 * 1024; turn += 1) {
      clock.advance(10_000);
      await journal.deleteHost("nobody");
      await journal.deleteHost("nobody");
    }
    expect(logBytes()).toBeLessThanOrEqual(512 * 1024);
    await write(100);
    expect(logBytes()).toBeLessThanOrEqual(512 * 1024);
  });

  test("closing commits what waits, refuses what comes later and lets go of the directory", async () => {
    const waiting = settled(journal.append("s1", 1, [entry.sessionCreated("s1")]));
    const closing = journal.close();
    expect(await settled(journal.append("s1", 2, [entry.started("c1")]))).toBe("journal_unavailable");
    expect(await waiting).toBe("done");
    await closing;
    await journal.close();
    expect(clock.armed).toBe(0);
    journal = await open();
    expect(await sequences("s1")).toEqual([1]);
  });

  test("an I/O error while writing stops the journal for good and rejects everything as in doubt", async () => {
    // The limit on file sizes of a process is a true I/O error of SQLite, which nothing in this process can bring about.
    const program = fileURLToPath(new URL("../../../../tests/support/append-until-stopped.mjs", import.meta.url));
    const other = temporaryDirectory();
    const child = spawn("bash", ["-c", `ulimit -f 2000; exec "$0" "$@"`, process.execPath, program, other.path, mode, "100000"]);
    let output = "";
    let errors = "";
    child.stdout.on("data", (chunk: Buffer) => {
      output += chunk.toString();
    });
    child.stderr.on("data", (chunk: Buffer) => {
      errors += chunk.toString();
    });
    const code = await new Promise((resolve) => child.once("close", resolve));
    expect([code, errors]).toEqual([3, expect.stringContaining(`${other.path}/journal.sqlite3 could not be written (SQLITE_IOERR_WRITE`)]);
    expect(errors.trim().split("\n").length).toBe(1);
    expect(output).toContain("rejected JournalFileError");
    const acknowledged = output.split("\n").filter((line) => line.startsWith("made ")).length;
    expect(acknowledged).toBeGreaterThan(3);
    expect(checkJournal(`${other.path}/journal.sqlite3`)).toEqual([]);
    other.remove();
  });
});
