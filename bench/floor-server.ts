/**
 * The floor: the least that commits a call's start, pushes it to another process over a Connect stream, takes the
 * outcome from that stream, commits it, and answers. No checks, no deadlines, no repeats, nothing to recover with.
 */
import { randomUUID } from "node:crypto";
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { type AttachRequest, type AttachResponse, AttachResponseSchema, HostService, type Outcome } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import Database from "better-sqlite3";
import { fail, hear, tell } from "./channel.js";
import { ENVIRONMENT, INPUT_JSON, TOOL } from "./lookup.js";
import { type Callable, measure } from "./measure.js";
import { Outgoing } from "./outgoing.js";

const FULL = 2;

/** Rows that come within one turn of the event loop share one transaction and one flush. */
class FloorJournal {
  readonly #db: Database.Database;
  readonly #begin: Database.Statement;
  readonly #insert: Database.Statement;
  readonly #commit: Database.Statement;
  #rows: { session: string; sequence: number; kind: string; body: string; durable: () => void }[] = [];
  flushCount = 0;

  constructor(file: string) {
    this.#db = new Database(file);
    this.#db.pragma("journal_mode = WAL");
    this.#db.exec(
      `CREATE TABLE records (session TEXT NOT NULL, sequence INTEGER NOT NULL, commit_time INTEGER NOT NULL,
         kind TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (session, sequence)) STRICT, WITHOUT ROWID`,
    );
    // Before the first write the library reports FULL and means NORMAL.
    this.#db.pragma("synchronous = FULL");
    if (this.#db.pragma("synchronous", { simple: true }) !== FULL) throw new Error("the floor does not flush its commits");
    this.#begin = this.#db.prepare("BEGIN IMMEDIATE");
    this.#insert = this.#db.prepare("INSERT INTO records VALUES (?, ?, ?, ?, ?)");
    this.#commit = this.#db.prepare("COMMIT");
  }

  append(session: string, sequence: number, kind: string, body: string): Promise<void> {
    return new Promise((durable) => {
      if (this.#rows.push({ session, sequence, kind, body, durable }) === 1) setImmediate(() => this.#flush());
    });
  }

  close(): void {
    this.#db.close();
  }

  #flush(): void {
    const rows = this.#rows;
    this.#rows = [];
    const now = Date.now();
    this.#begin.run();
    for (const { session, sequence, kind, body } of rows) this.#insert.run(session, sequence, now, kind, body);
    this.#commit.run();
    this.flushCount++;
    for (const { durable } of rows) durable();
  }
}

class Floor implements Callable {
  readonly #journal: FloorJournal;
  readonly #running = new Map<number, (outcome: Outcome | undefined) => void>();
  readonly commands = new Outgoing<AttachResponse>();
  #lastSequence = 0;

  constructor(journal: FloorJournal) {
    this.#journal = journal;
  }

  get flushCount(): number {
    return this.#journal.flushCount;
  }

  get isRunning(): boolean {
    return this.#running.size > 0;
  }

  async call(sessionId: string): Promise<void> {
    const callSequence = ++this.#lastSequence;
    const asked = { callId: randomUUID(), name: TOOL, environment: ENVIRONMENT, inputJson: INPUT_JSON };
    await this.#journal.append(sessionId, callSequence, "tool_call_started", JSON.stringify(asked));
    const outcome = await new Promise<Outcome | undefined>((resolve) => {
      this.#running.set(callSequence, resolve);
      this.commands.push(
        create(AttachResponseSchema, {
          message: { case: "command", value: { kind: { case: "runTool", value: { sessionId, callSequence, ...asked } } } },
        }),
      );
    });
    if (outcome?.status.case !== "ok") throw new Error("the host of the floor answered without a value");
    const ended = { callSequence, valueJson: outcome.status.value.valueJson };
    await this.#journal.append(sessionId, ++this.#lastSequence, "tool_call_ended", JSON.stringify(ended));
  }

  returned(callSequence: number, outcome: Outcome | undefined): void {
    this.#running.get(callSequence)?.(outcome);
    this.#running.delete(callSequence);
  }
}

const [directory = ""] = process.argv.slice(2);
const journal = new FloorJournal(join(directory, "floor.sqlite"));
const floor = new Floor(journal);

const server = createServer(
  connectNodeAdapter({
    routes: (router) =>
      router.service(HostService, {
        async *attach(requests) {
          void read(requests);
          yield create(AttachResponseSchema, {
            message: { case: "command", value: { kind: { case: "attached", value: { generation: 1 } } } },
          });
          yield* floor.commands;
        },
      }),
  }),
);

async function read(requests: AsyncIterable<AttachRequest>): Promise<void> {
  try {
    for await (const { message } of requests) {
      if (message.case === "reportOutcome") floor.returned(message.value.callSequence, message.value.outcome);
    }
  } catch (error) {
    // Leaving is how the host's part ends; with calls on their way it is a failure of the run.
    if (floor.isRunning) fail(error);
  }
}

server.listen(0, "127.0.0.1", () => tell({ type: "listening", url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }));
hear(
  (span) => measure(floor, span),
  async () => journal.close(),
);
