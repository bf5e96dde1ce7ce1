/**
 * How long a start takes: 1,000,000 records and 100 open calls against 1,000 records and 100 open calls. Recovery
 * reads open calls and nothing else, so the history must not show.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import {
  EnvironmentSchema,
  EventEmittedSchema,
  ReceiverSchema,
  SessionCreatedSchema,
  SessionSchema,
  ToolCallEndedSchema,
  ToolCallStartedSchema,
  ToolPlacementSchema,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { defaultConfig, LIMITS } from "../server/src/config.js";
import { ok } from "../server/src/core/outcome.js";
import type { Entry, Journal } from "../server/src/journal/port.js";
import { openSqliteJournal } from "../server/src/journal/sqlite/open-journal.js";
import { createBrain } from "../server/src/runtime/brain.js";
import { systemClock } from "../server/src/runtime/clock.js";
import { createValidator } from "../server/src/validation/validator.js";

const OPEN_CALLS = 100;
const SESSIONS = 100;
const { values } = parseArgs({ options: { records: { type: "string", default: "1000000" }, rounds: { type: "string", default: "7" } } });
const silent = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };

function open(directory: string): Promise<Journal> {
  return openSqliteJournal({
    directory,
    clock: systemClock,
    limits: LIMITS,
    mode: "inline",
    onFatal: (error) => {
      throw error;
    },
  });
}

function created(sessionId: string): Entry {
  const session = create(SessionSchema, {
    sessionId,
    createTime: timestampFromMs(Date.now()),
    environments: [create(EnvironmentSchema, { name: "app", kind: { case: "host", value: { hostId: "host" } } })],
    tools: [
      create(ToolPlacementSchema, {
        environment: "app",
        implementation: { kind: { case: "hostFunction", value: {} } },
        configurationJson: "{}",
        tool: { name: "lookup", description: "Look up one item.", inputSchemaJson: '{"type":"object"}' },
      }),
    ],
  });
  return { case: "sessionCreated", value: create(SessionCreatedSchema, { session, principal: "api" }) };
}

function started(callId: string): Entry {
  const receiver = create(ReceiverSchema, { hostId: "host", instanceId: "instance", generation: 1 });
  const deadline = timestampFromMs(Date.now() + 3_600_000);
  return {
    case: "toolCallStarted",
    value: create(ToolCallStartedSchema, { callId, name: "lookup", environment: "app", inputJson: "{}", deadline, receiver }),
  };
}

const emitted = (callSequence: number, emitId: string): Entry => ({
  case: "eventEmitted",
  value: create(EventEmittedSchema, { origin: { case: "callSequence", value: callSequence }, kind: "tick", dataJson: '{"at":1}', emitId }),
});
const ended = (callSequence: number): Entry => ({
  case: "toolCallEnded",
  value: create(ToolCallEndedSchema, { callSequence, outcome: ok('{"value":"item:7"}') }),
});

/** Sessions with ended calls up to about so many records in all, and one open call each. */
async function fill(directory: string, records: number): Promise<number> {
  const journal = await open(directory);
  const perSession = Math.max(0, Math.floor((records / SESSIONS - 2) / 4));
  let written = 0;
  for (let at = 0; at < SESSIONS; at++) {
    const sessionId = `session-${at}`;
    let next = 1;
    const append = (entries: Entry[]): Promise<void> => {
      const first = next;
      next += entries.length;
      written += entries.length;
      return journal.append(sessionId, first, entries);
    };
    const pending = [append([created(sessionId)])];
    for (let call = 0; call < perSession; call++) {
      const sequence = next;
      pending.push(append([started(`call-${call}`), emitted(sequence, `e-${call}-1`), emitted(sequence, `e-${call}-2`), ended(sequence)]));
      if (pending.length >= 1000) await Promise.all(pending.splice(0));
    }
    if (at < OPEN_CALLS) pending.push(append([started("open")]));
    await Promise.all(pending);
  }
  await journal.close();
  return written;
}

/** One start, from opening the file to having every open call in memory. */
async function start(directory: string): Promise<{ openMs: number; recoverMs: number }> {
  const begin = performance.now();
  const journal = await open(directory);
  const opened = performance.now();
  const validator = createValidator(LIMITS);
  const brain = createBrain({ journal, validator, clock: systemClock, config: defaultConfig(), log: silent, serverVersion: "bench" });
  const calls = await brain.recover();
  const recovered = performance.now();
  if (calls !== OPEN_CALLS) throw new Error(`${calls} open calls were taken up instead of ${OPEN_CALLS}`);
  await brain.drain(0);
  await validator.close();
  await journal.close();
  return { openMs: opened - begin, recoverMs: recovered - opened };
}

const median = (numbers: number[]): number => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? Number.NaN;

const directory = mkdtempSync(join(tmpdir(), "brain-recovery-"));
try {
  const sizes = [1000, Number(values.records)];
  const rows: { records: number; openMs: number; recoverMs: number; totalMs: number }[] = [];
  for (const size of sizes) {
    const home = join(directory, String(size));
    const records = await fill(home, size);
    const runs: { openMs: number; recoverMs: number }[] = [];
    for (let round = 0; round < Number(values.rounds); round++) runs.push(await start(home));
    rows.push({
      records,
      openMs: median(runs.map(({ openMs }) => openMs)),
      recoverMs: median(runs.map(({ recoverMs }) => recoverMs)),
      totalMs: median(runs.map(({ openMs, recoverMs }) => openMs + recoverMs)),
    });
  }
  console.log(`| records | open calls | open the file, ms | take up the calls, ms | together, ms |\n|---|---|---|---|---|`);
  for (const { records, openMs, recoverMs, totalMs } of rows) {
    console.log(`| ${records} | ${OPEN_CALLS} | ${openMs.toFixed(1)} | ${recoverMs.toFixed(1)} | ${totalMs.toFixed(1)} |`);
  }
  const [small, large] = rows;
  if (small === undefined || large === undefined) throw new Error("both sizes were measured");
  const allowed = Math.max(1.5 * small.totalMs, small.totalMs + 20);
  const verdict = large.totalMs <= allowed ? "PASS" : "FAIL";
  console.log(
    `\n${verdict}  ${large.totalMs.toFixed(1)} ms with the long history, at most ${allowed.toFixed(1)} ms allowed (1.5 times the short one, or 20 ms more)`,
  );
} finally {
  rmSync(directory, { recursive: true, force: true });
}
