import { LIMITS } from "../../server/src/config.js";
import { sameOutcome } from "../../server/src/core/outcome.js";
import { checkJournal } from "../../server/src/journal/check-journal.js";
import type { CallRow, Journal } from "../../server/src/journal/port.js";
import { openSqliteJournal } from "../../server/src/journal/sqlite/open-journal.js";
import { systemClock } from "../../server/src/runtime/clock.js";
import type { Told } from "./oracle.js";

/** What is wrong with the journal in a directory: by itself, and by what anybody was told. */
export async function checkDirectory(directory: string, databaseFile: string, told: readonly Told[]): Promise<string[]> {
  // Opened first, as a restart does: what a crash left is put in order by that.
  const onFatal = (error: Error): never => {
    throw error;
  };
  const journal = await openSqliteJournal({ directory, clock: systemClock, limits: LIMITS, mode: "inline", onFatal });
  const wrong: string[] = [];
  try {
    for (const one of told) {
      const problem = await missing(journal, one);
      if (problem !== undefined) wrong.push(problem);
    }
  } finally {
    await journal.close();
  }
  return [...wrong, ...checkJournal(databaseFile).map(({ law, message }) => `${law}: ${message}`)];
}

async function missing(journal: Journal, told: Told): Promise<string | undefined> {
  switch (told.type) {
    case "ending": {
      const row = await journal.findCall(told.sessionId, { callId: told.callId });
      const isThere = row?.callSequence === told.callSequence && row.endSequence === told.endSequence && row.ended?.outcome !== undefined;
      if (isThere && row.ended?.outcome !== undefined && sameOutcome(row.ended.outcome, told.outcome)) return undefined;
      return `the caller of ${told.callId} was told an ending at ${told.endSequence}, which is not in the file`;
    }
    case "emit": {
      const row = await callOf(journal, told.key);
      const recorded = row === undefined ? undefined : await journal.findEmit(row.sessionId, row.callSequence, told.emitId);
      return recorded === told.sequence ? undefined : `emit ${told.emitId} was answered ${told.sequence}; the file has it at ${recorded}`;
    }
    case "report": {
      const row = await callOf(journal, told.key);
      const ending = row?.ended?.outcome;
      if (ending === undefined || told.standing === undefined || !sameOutcome(ending, told.standing)) {
        return `a report for ${told.key} was told an ending that is not in the file`;
      }
      return told.late && row?.late === undefined ? `a report for ${told.key} was answered LATE; the file has no late outcome` : undefined;
    }
    case "cancel": {
      const row = await journal.findCall(told.sessionId, { callSequence: told.callSequence });
      return row?.endSequence === undefined ? `a cancel of call ${told.callSequence} was answered; the file has no ending` : undefined;
    }
    case "session ended": {
      const row = await journal.findSession(told.sessionId);
      return row?.ended === true && row.openToolCalls === 0 ? undefined : "the end of the session was answered, and is not in the file";
    }
  }
}

function callOf(journal: Journal, key: string): Promise<CallRow | undefined> {
  const slash = key.lastIndexOf("/");
  return journal.findCall(key.slice(0, slash), { callSequence: Number(key.slice(slash + 1)) });
}
