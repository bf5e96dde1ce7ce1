import Database from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { entry, JOURNAL_LIMITS, temporaryDirectory } from "../../../../tests/support/journal-fixture.js";
import { systemClock } from "../../runtime/clock.js";
import { checkJournal } from "../check-journal.js";
import type { CallRow, HostRow, Journal } from "../port.js";
import { openSqliteJournal } from "./open-journal.js";
import { Reader } from "./reader.js";

const PAGE = { records: 1000, bytes: 64 * 1024 * 1024 };

describe.each(["inline", "thread"] as const)("the journal with its writer %s", (mode) => {
  let directory: { path: string; remove(): void };
  let journal: Journal;
  const warnings: string[] = [];
  const file = (): string => `${directory.path}/journal.sqlite3`;
  const open = (limits = JOURNAL_LIMITS): Promise<Journal> =>
    openSqliteJournal({
      directory: directory.path,
      clock: systemClock,
      limits,
      mode,
      log: { warn: (_, message) => warnings.push(message) },
      onFatal: (error) => {
        throw error;
      },
    });
  const reopen = async (limits = JOURNAL_LIMITS): Promise<void> => {
    await journal.close();
    journal = await open(limits);
  };
  /** A session with one call that has one event and ended, and one call that is open. */
  const fill = async (sessionId: string): Promise<void> => {
    await journal.append(sessionId, 1, [entry.sessionCreated(sessionId)]);
    await journal.append(sessionId, 2, [entry.started("c1", '{"a":"b\\u0000c"}')]);
    await journal.append(sessionId, 3, [entry.event(2, "e1"), entry.ended(2, '"x"')]);
    await journal.append(sessionId, 5, [entry.started("c2")]);
  };
  beforeEach(async () => {
    directory = temporaryDirectory();
    warnings.length = 0;
    journal = await open();
  });
  afterEach(async () => {
    await journal.close();
    expect(checkJournal(file())).toEqual([]);
    directory.remove();
  });

  test("what was appended is read back in order after the journal was closed and opened again", async () => {
    await fill("s1");
    const before = await journal.read("s1", 0, PAGE);
    await reopen();
    const records = await journal.read("s1", 0, PAGE);
    expect(records).toEqual(before);
    expect(records.map((record) => [record.sessionId, record.sequence, record.entry.case])).toEqual([
      ["s1", 1, "sessionCreated"],
      ["s1", 2, "toolCallStarted"],
      ["s1", 3, "eventEmitted"],
      ["s1", 4, "toolCallEnded"],
      ["s1", 5, "toolCallStarted"],
    ]);
    const started = records[1]?.entry;
    expect(started?.case === "toolCallStarted" && started.value.inputJson).toBe('{"a":"b\\u0000c"}');
    expect(Number(records[0]?.commitTime?.seconds)).toBeGreaterThan(1_600_000_000);
  });

  test("an append that resolved is seen by another connection", async () => {
    await fill("s1");
    const witness = new Database(file(), { readonly: true });
    const kinds = witness.prepare("SELECT kind FROM records ORDER BY sequence").pluck().all();
    witness.close();
    expect(kinds).toEqual(["session_created", "tool_call_started", "event_emitted", "tool_call_ended", "tool_call_started"]);
  });

  test("a page begins after its cursor and is bounded by records and by bytes, but holds at least one record", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    await journal.append("s1", 2, [entry.started("c1")]);
    const big = JSON.stringify("x".repeat(100_000));
    await journal.append(
      "s1",
      3,
      ["e1", "e2", "e3"].map((emitId) => entry.event(2, emitId, big)),
    );
    const sequences = async (after: number, records: number, bytes: number): Promise<number[]> =>
      (await journal.read("s1", after, { records, bytes })).map((record) => record.sequence);
    expect(await sequences(0, 2, 1e9)).toEqual([1, 2]);
    expect(await sequences(2, 100, 250_000)).toEqual([3, 4]);
    expect(await sequences(2, 100, 10)).toEqual([3]);
    expect(await sequences(5, 100, 1e9)).toEqual([]);
    expect(await sequences(99, 100, 1e9)).toEqual([]);
    expect(await journal.read("nobody", 0, PAGE)).toEqual([]);
  });

  test("a session's row tells its last sequence, its open calls, its labels and whether it ended", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1", { labels: { team: "a", "": "ü" }, createTimeMs: 5000 })]);
    await journal.append("s1", 2, [entry.started("c1")]);
    const row = { sessionId: "s1", ended: false, createTimeMs: 5000, labels: { team: "a", "": "ü" }, lastSequence: 2, openToolCalls: 1 };
    expect(await journal.findSession("s1")).toEqual(row);
    await journal.append("s1", 3, [entry.sessionEnded(), entry.ended(2)]);
    expect(await journal.findSession("s1")).toEqual({ ...row, ended: true, lastSequence: 4, openToolCalls: 0 });
    expect(await journal.findSession("s2")).toBeUndefined();
  });

  test("a request_id names its session for as long as that session exists, and makes no second one", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1", { requestId: "r1" })]);
    expect(await journal.findSessionByRequestId("r1")).toBe("s1");
    await expect(journal.append("s2", 1, [entry.sessionCreated("s2", { requestId: "r1" })])).rejects.toMatchObject({
      failure: "sequence_conflict",
      message: 'request_id "r1" already made session s1',
    });
    expect(await journal.findSession("s2")).toBeUndefined();
    await journal.deleteSession("s1");
    expect(await journal.findSessionByRequestId("r1")).toBeUndefined();
    await journal.append("s2", 1, [entry.sessionCreated("s2", { requestId: "r1" })]);
    expect(await journal.findSessionByRequestId("r1")).toBe("s2");
    expect(await journal.findSessionByRequestId("")).toBeUndefined();
  });

  test("sessions are listed newest first, in pages, by label and by whether they ended", async () => {
    for (let index = 1; index <= 7; index += 1) {
      const labels = { parity: index % 2 === 0 ? "even" : "odd", ...(index > 3 ? { high: "yes" } : {}) };
      await journal.append(`s${index}`, 1, [entry.sessionCreated(`s${index}`, { labels })]);
    }
    await journal.append("s6", 2, [entry.sessionEnded()]);
    const list = async (query: { labels?: Record<string, string>; ended?: boolean }, pageSize = 3): Promise<string[][]> => {
      const pages: string[][] = [];
      let pageToken = "";
      do {
        const page = await journal.listSessions({ labels: {}, ...query, pageSize, pageToken });
        pages.push(page.sessions.map((session) => session.sessionId));
        pageToken = page.nextPageToken;
      } while (pageToken !== "");
      return pages;
    };
    expect(await list({})).toEqual([["s7", "s6", "s5"], ["s4", "s3", "s2"], ["s1"]]);
    expect(await list({}, 7)).toEqual([["s7", "s6", "s5", "s4", "s3", "s2", "s1"]]);
    expect(await list({ labels: { parity: "even" } })).toEqual([["s6", "s4", "s2"]]);
    expect(await list({ labels: { parity: "even", high: "yes" } }, 1)).toEqual([["s6"], ["s4"]]);
    expect(await list({ labels: { parity: "even", high: "yes" }, ended: false })).toEqual([["s4"]]);
    expect(await list({ ended: true })).toEqual([["s6"]]);
    expect(await list({ labels: { parity: "none" } })).toEqual([[]]);
    for (const pageToken of ["x", "-1", "0", "1.5", "99999999999999999999"]) {
      await expect(journal.listSessions({ labels: {}, pageSize: 1, pageToken })).rejects.toMatchObject({ reason: "invalid_argument" });
    }
  });

  test("a call is found by either of its names, with its ending and its late outcome", async () => {
    await fill("s1");
    await journal.append("s1", 6, [entry.late(2, '"late"')]);
    const outline = (call: CallRow | undefined) =>
      call && [call.sessionId, call.callSequence, call.started.callId, call.endSequence, call.lateSequence];
    expect(outline(await journal.findCall("s1", { callId: "c1" }))).toEqual(["s1", 2, "c1", 4, 6]);
    expect(outline(await journal.findCall("s1", { callSequence: 5 }))).toEqual(["s1", 5, "c2", undefined, undefined]);
    const call = await journal.findCall("s1", { callSequence: 2 });
    expect(call?.ended?.outcome?.status).toMatchObject({ case: "ok", value: { valueJson: '"x"' } });
    expect(call?.late?.outcome?.status).toMatchObject({ case: "ok", value: { valueJson: '"late"' } });
    expect(await journal.findCall("s1", { callId: "c3" })).toBeUndefined();
    expect(await journal.findCall("s1", { callSequence: 3 })).toBeUndefined();
    expect(await journal.findCall("s2", { callId: "c1" })).toBeUndefined();
  });

  test("calls are listed by cursor, open, ended or all", async () => {
    await fill("s1");
    await journal.append("s1", 6, [entry.started("c3")]);
    const list = async (open: boolean | undefined, afterCallSequence: number, pageSize: number): Promise<number[]> =>
      (await journal.listCalls({ sessionId: "s1", ...(open === undefined ? {} : { open }), afterCallSequence, pageSize })).map(
        (call) => call.callSequence,
      );
    expect(await list(undefined, 0, 10)).toEqual([2, 5, 6]);
    expect(await list(undefined, 2, 1)).toEqual([5]);
    expect(await list(true, 0, 10)).toEqual([5, 6]);
    expect(await list(true, 5, 10)).toEqual([6]);
    expect(await list(false, 0, 10)).toEqual([2]);
    await reopen({ ...JOURNAL_LIMITS, journalCallPageBytes: 1 });
    expect(await list(undefined, 0, 10)).toEqual([2]);
  });

  test("the open calls of all sessions are found after a restart, those of a deleted session are not", async () => {
    await fill("s1");
    await fill("s2");
    await fill("s3");
    await journal.deleteSession("s2");
    await reopen();
    expect((await journal.openCalls()).map((call) => [call.sessionId, call.callSequence])).toEqual([
      ["s1", 5],
      ["s3", 5],
    ]);
  });

  test("an emit_id is found at its sequence, within its call only", async () => {
    await fill("s1");
    expect(await journal.findEmit("s1", 2, "e1")).toBe(3);
    expect(await journal.findEmit("s1", 5, "e1")).toBeUndefined();
    expect(await journal.findEmit("s2", 2, "e1")).toBeUndefined();
    await journal.append("s1", 6, [entry.event(5, "e1"), entry.event(5, ""), entry.event(5, "")]);
    expect(await journal.findEmit("s1", 5, "e1")).toBe(6);
    expect(await journal.findEmit("s1", 5, "")).toBeUndefined();
  });

  test("a deleted session is gone at once and its rows go step by step, also after a restart", async () => {
    await fill("s1");
    for (let index = 0; index < 20; index += 1) {
      const emits = Array.from({ length: 50 }, (_, n) => entry.event(5, `e${index}-${n}`));
      await journal.append("s1", 6 + index * 50, emits);
    }
    await journal.deleteSession("s1");
    expect(await journal.findSession("s1")).toBeUndefined();
    expect(await journal.read("s1", 0, PAGE)).toEqual([]);
    expect(await journal.findCall("s1", { callId: "c1" })).toBeUndefined();
    expect((await journal.listSessions({ pageToken: "", pageSize: 10, labels: {} })).sessions).toEqual([]);
    await expect(journal.append("s1", 1006, [entry.event(5, "x")])).rejects.toMatchObject({ failure: "session_not_found" });
    await journal.deleteSession("s1");
    // Closing stops the removal where it is; opening again takes it up.
    await reopen({ ...JOURNAL_LIMITS, journalPurgeRows: 100 });
    const witness = new Database(file(), { readonly: true });
    const left = witness.prepare(
      "SELECT (SELECT count(*) FROM records) + (SELECT count(*) FROM calls) + (SELECT count(*) FROM emits) + (SELECT count(*) FROM purges)",
    );
    // Each of these is one more turn of the writer, which takes one step of the removal with it.
    for (let turn = 0; turn < 100 && left.pluck().get() !== 0; turn += 1) await journal.deleteHost("nobody");
    expect(left.get()).toBe(0);
    witness.close();
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    expect((await journal.read("s1", 0, PAGE)).length).toBe(1);
  });

  test("hosts are put, found by id and by token hash, listed in pages and deleted", async () => {
    const host = (n: number, requestId = ""): HostRow => ({
      hostId: `h${n}`,
      displayName: `host ${n}`,
      createTimeMs: n,
      tokenSha256: new Uint8Array(32).fill(n),
      requestId,
    });
    for (const n of [1, 2, 3]) expect(await journal.putHost(host(n, `r${n}`))).toEqual(host(n, `r${n}`));
    expect(await journal.putHost({ ...host(9, "r2"), tokenSha256: new Uint8Array(32).fill(99) })).toEqual({
      ...host(2, "r2"),
      tokenSha256: new Uint8Array(32).fill(99),
    });
    await reopen();
    expect(await journal.findHost("h9")).toBeUndefined();
    expect(await journal.findHostByToken(new Uint8Array(32).fill(2))).toBeUndefined();
    expect((await journal.findHostByToken(new Uint8Array(32).fill(99)))?.hostId).toBe("h2");
    expect(await journal.findHost("h3")).toEqual(host(3, "r3"));
    const page = await journal.listHosts("", 2);
    expect(page.hosts.map((row) => row.hostId)).toEqual(["h1", "h2"]);
    expect((await journal.listHosts(page.nextPageToken, 2)).hosts.map((row) => row.hostId)).toEqual(["h3"]);
    await journal.deleteHost("h3");
    await journal.deleteHost("h3");
    expect(await journal.findHost("h3")).toBeUndefined();
    expect((await journal.listHosts(page.nextPageToken, 2)).hosts).toEqual([]);
  });

  test("a listener hears of every commit of its session and of its deletion, and of nothing after it unsubscribed", async () => {
    let heard = 0;
    let others = 0;
    const stop = journal.watch("s1", () => {
      heard += 1;
    });
    journal.watch("s1", () => {
      throw new Error("a listener that throws");
    });
    const stopOther = journal.watch("s2", () => {
      others += 1;
    });
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    expect(heard).toBe(1);
    expect(warnings).toEqual(["a listener of a session's records threw"]);
    await expect(journal.append("s1", 7, [entry.started("c1")])).rejects.toMatchObject({ failure: "sequence_conflict" });
    expect(heard).toBe(1);
    await journal.deleteSession("s1");
    expect(heard).toBe(2);
    stop();
    stop();
    stopOther();
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    await journal.append("s2", 1, [entry.sessionCreated("s2")]);
    expect([heard, others]).toEqual([2, 0]);
  });

  test("fields that this Brain does not know survive in a record", async () => {
    await journal.append("s1", 1, [entry.sessionCreated("s1")]);
    const started = entry.started("c1");
    // Field 1000, varint 7.
    started.value.$unknown = [{ no: 1000, wireType: 0, data: new Uint8Array([7]) }];
    await journal.append("s1", 2, [started]);
    const [record] = await journal.read("s1", 1, PAGE);
    expect(record?.entry.value?.$unknown?.map(({ no, data }) => [no, ...data])).toEqual([[1000, 7]]);
  });
});

test("finding the open calls starts at the index that holds nothing else", async () => {
  const directory = temporaryDirectory();
  const onFatal = (error: Error): void => {
    throw error;
  };
  const journal = await openSqliteJournal({
    directory: directory.path,
    clock: systemClock,
    limits: JOURNAL_LIMITS,
    mode: "inline",
    onFatal,
  });
  const reader = new Reader(`${directory.path}/journal.sqlite3`, 1);
  const searches = (steps: string[]): string[] => steps.filter((step) => /^(SCAN|SEARCH)/.test(step));
  expect(searches(reader.explain("openCalls"))).toEqual([
    "SCAN calls USING INDEX open_calls",
    "SEARCH sessions USING INTEGER PRIMARY KEY (rowid=?)",
    "SEARCH started USING INDEX sqlite_autoindex_records_1 (session=? AND sequence=?)",
    "SEARCH ended USING INDEX sqlite_autoindex_records_1 (session=? AND sequence=?) LEFT-JOIN",
    "SEARCH late USING INDEX sqlite_autoindex_records_1 (session=? AND sequence=?) LEFT-JOIN",
  ]);
  for (const statement of ["findSession", "listOpenCalls"] as const) {
    expect(reader.explain(statement).filter((step) => step.startsWith("SCAN"))).toEqual([]);
    expect(reader.explain(statement).join()).toContain("open_calls");
  }
  reader.close();
  await journal.close();
  directory.remove();
});
