// A process that appends to a journal until it is killed or its journal gives up; run with plain node from the build.
// Arguments: directory, writer mode, bytes of each call's input. Says `made SESSION SEQUENCE` for each append that resolved.
// With a fourth argument `as-nobody` it opens the journal as that user. Exits 2 when the journal cannot be opened and 3 when it gives up, with its message on stderr.
import { writeSync } from "node:fs";
import { SessionCreatedSchema, ToolCallEndedSchema, ToolCallStartedSchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import Database from "better-sqlite3";
import { openSqliteJournal } from "../../server/dist/journal/sqlite/open-journal.js";
import { systemClock } from "../../server/dist/runtime/clock.js";

const [directory, mode, bytes, asNobody] = process.argv.slice(2);
const MIB = 1024 * 1024;
const stop = (code, error) => {
  writeSync(2, `${error.message}\n`);
  process.exit(code);
};
if (asNobody === "as-nobody") {
  // Everything is loaded by now, the native part too: nobody may be unable to read this tree.
  new Database(":memory:").close();
  process.setgid(65_534);
  process.setuid(65_534);
}
const journal = await openSqliteJournal({
  directory,
  mode,
  clock: systemClock,
  limits: {
    messageBytes: 3 * MIB,
    journalLockWaitMs: 30_000,
    journalRetryMs: 250,
    journalBatchAppends: 256,
    journalBatchBytes: 8 * MIB,
    journalIdleMs: 20,
    journalLogBytes: 2 * MIB,
    journalLogFileBytes: 4 * MIB,
    journalPurgeRows: 256,
    journalPurgeBytes: 4 * MIB,
    journalQuickCheckBytes: 512 * MIB,
    journalThreadCheckBytes: 512 * MIB,
    journalThreadCheckAfterMs: 1000,
    journalCallPageBytes: 8 * MIB,
  },
  onFatal: (error) => {
    // One turn later, so that what the journal rejects has been said.
    setImmediate(() => stop(3, error));
  },
}).catch((error) => stop(2, error));

// Synchronous on pipes, and waits where writeSync would fail with EAGAIN when nobody reads for a while.
const say = (line) => process.stdout.write(`${line}\n`);
const run = Math.random().toString(36).slice(2, 8);
const append = async (session, next, entries) => {
  await journal.append(session, next, entries);
  say(`made ${session} ${next + entries.length - 1}`);
};
const oneSession = async (session) => {
  await append(session, 1, [{ case: "sessionCreated", value: create(SessionCreatedSchema, { session: { sessionId: session } }) }]);
  for (let next = 2; ; next += 2) {
    const started = create(ToolCallStartedSchema, {
      callId: `c${next}`,
      name: "t",
      environment: "e",
      inputJson: "x".repeat(Number(bytes)),
    });
    await append(session, next, [{ case: "toolCallStarted", value: started }]);
    await append(session, next + 1, [{ case: "toolCallEnded", value: create(ToolCallEndedSchema, { callSequence: next }) }]);
  }
};
const outcomes = Array.from({ length: 8 }, (_, index) =>
  oneSession(`${run}-${index}`).catch((error) => say(`rejected ${error.name} ${error.failure ?? ""}`)),
);
await Promise.all(outcomes);
