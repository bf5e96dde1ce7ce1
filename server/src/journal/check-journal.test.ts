import Database from "better-sqlite3";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { entry, JOURNAL_LIMITS, temporaryDirectory } from "../../../tests/support/journal-fixture.js";
import { systemClock } from "../runtime/clock.js";
import { checkJournal } from "./check-journal.js";
import type { Journal } from "./port.js";
import { openSqliteJournal } from "./sqlite/open-journal.js";

let directory: { path: string; remove(): void };
const file = (): string => `${directory.path}/journal.sqlite3`;
const open = (): Promise<Journal> =>
  openSqliteJournal({
    directory: directory.path,
    clock: systemClock,
    limits: JOURNAL_LIMITS,
    mode: "inline",
    onFatal: (error) => {
      throw error;
    },
  });
/** Session a: 1 created, 2 started, 3 event, 4 cancel requested, 5 ended, 6 late, 7 started, 8 session ended, 9 ended. Session b: 1 created. */
beforeEach(async () => {
  directory = temporaryDirectory();
  const journal = await open();
  await journal.append("a", 1, [entry.sessionCreated("a", { requestId: "r", labels: { team: "x" } })]);
  await journal.append("a", 2, [entry.started("c1"), entry.event(2, "e1"), entry.cancelRequested(2), entry.ended(2), entry.late(2)]);
  await journal.append("a", 7, [entry.started("c2"), entry.sessionEnded(), entry.ended(7)]);
  await journal.append("b", 1, [entry.sessionCreated("b")]);
  await journal.close();
});
afterEach(() => directory.remove());

/** Does to the file what its own guards forbid. */
function tamper(...statements: string[]): void {
  const db = new Database(file());
  const triggers = db.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").all() as { name: string; sql: string }[];
  for (const trigger of triggers) db.exec(`DROP TRIGGER ${trigger.name}`);
  for (const statement of statements) db.exec(statement);
  for (const trigger of triggers) db.exec(trigger.sql);
  db.close();
}
const found = (): string[] => checkJournal(file()).map((problem) => `${problem.law} ${problem.message}`);
const OF_A = "session = (SELECT session FROM sessions WHERE session_id = 'a')";

describe("checking a journal", () => {
  test("finds nothing in a sound one, closed or in use", async () => {
    expect(checkJournal(file())).toEqual([]);
    const journal = await open();
    await journal.append("b", 2, [entry.started("c1")]);
    expect(checkJournal(file())).toEqual([]);
    await journal.append("b", 3, [entry.ended(2)]);
    await journal.close();
  });

  test("finds nothing wrong with sessions whose removal has not ended", () => {
    tamper(
      "INSERT INTO purges SELECT session FROM sessions WHERE session_id = 'a'",
      "DELETE FROM session_labels",
      "DELETE FROM sessions WHERE session_id = 'a'",
    );
    expect(checkJournal(file())).toEqual([]);
  });

  test.each<[string, string[], string, RegExp]>([
    ["a gap", [`DELETE FROM records WHERE ${OF_A} AND sequence = 4`], "L7", /record 5 is where sequence 4 belongs/],
    ["a missing first record", [`DELETE FROM records WHERE ${OF_A} AND sequence = 1`], "L7", /record 2 is where sequence 1 belongs/],
    [
      "a second creation",
      [
        `UPDATE records SET body = (SELECT body FROM records WHERE ${OF_A} AND sequence = 1), kind = 'session_created' WHERE ${OF_A} AND sequence = 4`,
      ],
      "L7",
      /record 4 breaks that session_created is the first/,
    ],
    [
      "two endings",
      [
        `UPDATE records SET body = (SELECT body FROM records WHERE ${OF_A} AND sequence = 5), kind = 'tool_call_ended' WHERE ${OF_A} AND sequence = 6`,
      ],
      "L3",
      /record 6 is a second ending of call 2/,
    ],
    [
      "an ending of no call",
      [
        `DELETE FROM calls`,
        `UPDATE records SET body = (SELECT body FROM records WHERE ${OF_A} AND sequence = 4), kind = 'tool_call_cancel_requested' WHERE ${OF_A} AND sequence = 2`,
      ],
      "L3",
      /record 5 names call 2, which was never started/,
    ],
    [
      "two late outcomes",
      [
        `UPDATE records SET body = (SELECT body FROM records WHERE ${OF_A} AND sequence = 6), kind = 'tool_call_late_outcome' WHERE ${OF_A} AND sequence = 9`,
      ],
      "L3",
      /record 9 is a second late outcome of call 2/,
    ],
    [
      "a late outcome without an ending",
      [
        `UPDATE records SET body = (SELECT body FROM records WHERE ${OF_A} AND sequence = 3), kind = 'event_emitted' WHERE ${OF_A} AND sequence = 5`,
      ],
      "L3",
      /record 6 is a late outcome of call 2, which has no ending/,
    ],
    [
      "an event above its call's ending",
      [
        `UPDATE records SET body = (SELECT body FROM records WHERE ${OF_A} AND sequence = 3), kind = 'event_emitted' WHERE ${OF_A} AND sequence = 6`,
      ],
      "L6",
      /record 6 is an event of call 2, which ended at 5/,
    ],
    [
      "a repeated emit_id",
      [
        `UPDATE records SET body = (SELECT body FROM records WHERE ${OF_A} AND sequence = 3), kind = 'event_emitted' WHERE ${OF_A} AND sequence = 4`,
      ],
      "L5",
      /record 4 repeats emit_id "e1"/,
    ],
    [
      "a cancellation of an ended call",
      [
        `UPDATE records SET body = (SELECT body FROM records WHERE ${OF_A} AND sequence = 4), kind = 'tool_call_cancel_requested' WHERE ${OF_A} AND sequence = 6`,
      ],
      "L3",
      /record 6 cancels call 2, which ended at 5/,
    ],
    [
      "a second start with the call_id",
      [`UPDATE records SET body = (SELECT body FROM records WHERE ${OF_A} AND sequence = 2) WHERE ${OF_A} AND sequence = 7`],
      "L3",
      /record 7 starts a second call with call_id "c1"/,
    ],
    [
      "a start after the session's end",
      [
        `UPDATE records SET body = (SELECT body FROM records WHERE ${OF_A} AND sequence = 7), kind = 'tool_call_started' WHERE ${OF_A} AND sequence = 9`,
      ],
      "L3",
      /record 9 comes after session_ended at 8/,
    ],
    [
      "a call left open by the session's end",
      [`DELETE FROM records WHERE ${OF_A} AND sequence = 9`],
      "L3",
      /record 7 starts a call that its session's end did not end/,
    ],
    [
      "a body that is no record",
      [`UPDATE records SET body = x'ffff' WHERE ${OF_A} AND sequence = 4`],
      "L5",
      /record 4 of kind tool_call_cancel_requested cannot be decoded/,
    ],
    [
      "a kind that is not the body's",
      [`UPDATE records SET kind = 'event_emitted' WHERE ${OF_A} AND sequence = 4`],
      "L5",
      /record 4 is of kind event_emitted but holds tool_call_cancel_requested/,
    ],
    ["a call without a row", [`DELETE FROM calls WHERE ${OF_A} AND call_sequence = 7`], "L5", /call 7 has no row/],
    [
      "a row without a call",
      [`INSERT INTO calls SELECT session, 4, 'x', NULL, NULL FROM sessions WHERE session_id = 'a'`],
      "L5",
      /a row of call 4, but no record starts it/,
    ],
    [
      "a row that says another ending",
      [`UPDATE calls SET end_sequence = NULL, late_sequence = NULL WHERE call_sequence = 2`],
      "L5",
      /row of call 2 says call_id "c1", ended null, late null; its records say "c1", 5, 6/,
    ],
    ["a missing emit row", ["DELETE FROM emits"], "L5", /0 rows of emit ids and 1 records/],
    ["an emit row at another sequence", ["UPDATE emits SET sequence = 4"], "L5", /row of emit_id "e1" of call 2 says 4, its record 3/],
    [
      "a session row that is still open",
      ["UPDATE sessions SET end_sequence = NULL"],
      "L5",
      /its row says it ended at null, its records at 8/,
    ],
    [
      "another request_id",
      ["UPDATE sessions SET request_id = 'q' WHERE session_id = 'a'"],
      "L5",
      /its row has request_id "q", its record "r"/,
    ],
    [
      "another session_id",
      ["UPDATE sessions SET session_id = 'z' WHERE session_id = 'a'"],
      "L5",
      /session z: its first record creates session a/,
    ],
    ["another create time", ["UPDATE sessions SET create_time = 5 WHERE session_id = 'a'"], "L5", /different create times/],
    ["other labels", ["UPDATE session_labels SET value = 'y'"], "L5", /its labels differ/],
    [
      "rows of nobody",
      ["DELETE FROM session_labels", "DELETE FROM sessions WHERE session_id = 'a'"],
      "L5",
      /table records has rows of session number 1, which does not exist/,
    ],
    ["labels of nobody", ["INSERT INTO session_labels VALUES ('a', 'b', 77)"], "L5", /table session_labels has rows of session number 77/],
  ])("finds %s", (_, statements, law, message) => {
    tamper(...statements);
    expect(found()).toContainEqual(expect.stringMatching(new RegExp(`^${law} .*${message.source}`)));
  });

  test("an entry of a newer Brain only counts", () => {
    // Field 999 of Record, an empty message.
    tamper(`UPDATE records SET kind = 'from_the_future', body = x'ba3e00' WHERE ${OF_A} AND sequence = 4`);
    expect(checkJournal(file())).toEqual([]);
  });

  test("says of a file that is no journal, or lacks a part of it, only that", () => {
    const db = new Database(file());
    db.exec("DROP TRIGGER call_ends_once");
    db.close();
    expect(found()).toEqual([`file the journal file ${file()} lacks trigger call_ends_once`]);
    expect(checkJournal(`${directory.path}/nothing`)).toEqual([{ law: "file", message: expect.stringContaining("cannot be read") }]);
    expect(checkJournal(`${directory.path}/lock.sqlite3`)).toEqual([
      { law: "file", message: expect.stringContaining("is not a Brain journal") },
    ]);
  });
});
