/**
 * A server, a host in a process of its own and a caller: the ground every case stands on, with the checks that hold
 * after every case.
 *
 * 1. Each call has exactly one ending, its events come before it, and sequences are 1, 2, 3... without gaps.
 * 2. A killed and restarted server reads back what was read before.
 * 3. No function ran more than once for one call.
 * 4. Afterwards a plain call on another session and a read of the journal both answer quickly.
 * 5. No process wrote a warning or died of an unhandled rejection.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Brain, type HostEnvironment, hostEnv, type JournalRecord, type Placement, type Session } from "@aexhq/brain";
import { expect } from "vitest";
import { CaseHost } from "./case-host.js";
import { type CaseTools, caseTools } from "./case-tools.js";
import { ServerProcess } from "./server-process.js";

/** 500 ms is the promise; a machine that builds something else at the same time gets four times as much. */
const QUICK_MS = 2_000;

export class CaseGround {
  server: ServerProcess;
  readonly host: CaseHost;
  readonly caller: Brain;
  readonly token: string;
  readonly app: HostEnvironment;
  readonly tools: CaseTools = caseTools();
  readonly #folder: string;
  readonly #warnings: string[] = [];
  readonly #onWarning = (warning: Error): void => void this.#warnings.push(`${warning.name}: ${warning.message}`);

  private constructor(server: ServerProcess, host: CaseHost, token: string, folder: string) {
    this.server = server;
    this.host = host;
    this.token = token;
    this.#folder = folder;
    this.app = hostEnv({ name: "app", hostId: host.hostId });
    this.caller = new Brain({ baseUrl: server.url, token });
    process.on("warning", this.#onWarning);
  }

  static async open(options: { flags?: readonly string[]; hostRoute?: "auto" | "attach" | "watch" | "sse" } = {}): Promise<CaseGround> {
    const token = "case-token";
    const folder = mkdtempSync(join(tmpdir(), "brain-case-"));
    const counterFile = join(folder, "runs");
    writeFileSync(counterFile, "");
    const server = await ServerProcess.start({ apiToken: token, flags: options.flags ?? [] });
    const { hostRoute } = options;
    const host = await CaseHost.start({ url: server.url, token, counterFile, ...(hostRoute === undefined ? {} : { hostRoute }) });
    return new CaseGround(server, host, token, folder);
  }

  /** A session with these Tools in Environment `app`, served by the host process. */
  session(...names: (keyof CaseTools)[]): Promise<Session> {
    return this.caller.sessions.create({ tools: names.map((name): Placement => this.tools[name]({ env: this.app })) });
  }

  /** How often the function ran for a call, or for all calls of a session. */
  runs(sessionId: string, callSequence?: number): number {
    const wanted = callSequence === undefined ? `${sessionId}/` : `${sessionId}/${callSequence}`;
    return this.#runs().filter((run) => (callSequence === undefined ? run.startsWith(wanted) : run === wanted)).length;
  }

  #runs(): string[] {
    return readFileSync(join(this.#folder, "runs"), "utf8").split("\n").filter(Boolean);
  }

  /** Everything on record so far. */
  async records(session: Session): Promise<JournalRecord[]> {
    const { lastSequence } = await session.describe();
    return recordsUntil(session, ({ sequence }) => sequence >= lastSequence);
  }

  /** The checks named above, for these sessions and for all runs. Restarts the server. */
  async expectStanding(...sessions: Session[]): Promise<void> {
    const before: JournalRecord[][] = [];
    for (const session of sessions) {
      const records = await this.records(session);
      expectLawful(records);
      before.push(records);
    }
    await this.#expectQuick();
    expectNoWarnings("the server", this.server.stderr);

    await this.server.stop("SIGKILL");
    this.server = await this.server.restart();
    for (const [index, session] of sessions.entries()) {
      const records = await this.records(session);
      const known = before[index] ?? [];
      // What a deaf function reports late may have been added.
      expect(records.slice(0, known.length)).toEqual(known);
      expectLawful(records);
    }
    await this.#expectQuick({ isFirst: true });

    const runs = this.#runs();
    expect(runs.length, "runs of one call").toBe(new Set(runs).size);
    expect(this.host.alive, "the host process lives").toBe(true);
    expect(this.host.stderr, "the host's stderr").toEqual([]);
    expectNoWarnings("the server", this.server.stderr);
    expect(this.#warnings, "warnings of this process").toEqual([]);
  }

  /** `isFirst`: the host still has to find the restarted server. */
  async #expectQuick(options: { isFirst?: boolean } = {}): Promise<void> {
    const other = await this.session("plain");
    const call = { name: "plain", environment: "app", input: { hello: "world" } };
    const answer = { status: "ok", value: { hello: "world" } };
    if (options.isFirst === true) expect(await other.callTool(call)).toEqual(answer);
    const callMs = await timed(async () => expect(await other.callTool(call)).toEqual(answer));
    const readMs = await timed(async () => expect((await this.records(other)).length).toBeGreaterThanOrEqual(3));
    expect(callMs, "ms of a plain call afterwards").toBeLessThan(QUICK_MS);
    expect(readMs, "ms of reading a journal afterwards").toBeLessThan(QUICK_MS);
    await other.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    process.off("warning", this.#onWarning);
    await this.caller.close();
    await this.host[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** The records up to and with the first that `isLast` accepts. */
export async function recordsUntil(session: Session, isLast: (record: JournalRecord) => boolean): Promise<JournalRecord[]> {
  const found: JournalRecord[] = [];
  for await (const record of session.records()) {
    found.push(record);
    if (isLast(record)) break;
  }
  return found;
}

export const kindsOf = (records: readonly JournalRecord[]): unknown[] => records.map(({ entry }) => entry.case);

/** Check 1. */
export function expectLawful(records: readonly JournalRecord[]): void {
  expect(records.map(({ sequence }) => sequence)).toEqual(records.map((_, index) => index + 1));
  const open = new Set<number>();
  const ended = new Set<number>();
  for (const { sequence, entry } of records) {
    switch (entry.case) {
      case "toolCallStarted":
        open.add(sequence);
        break;
      case "eventEmitted":
        expect(open.has(entry.value.origin.value ?? 0), `event ${sequence} belongs to an open call`).toBe(true);
        break;
      case "toolCallEnded":
        expect(open.delete(entry.value.callSequence), `ending ${sequence} is its call's only one`).toBe(true);
        ended.add(entry.value.callSequence);
        break;
      case "toolCallLateOutcome":
        expect(ended.delete(entry.value.callSequence), `late outcome ${sequence} is its call's only one`).toBe(true);
        break;
      default:
        break;
    }
  }
  expect([...open], "calls without an ending").toEqual([]);
}

export function expectNoWarnings(who: string, stderr: readonly string[]): void {
  const bad = stderr.filter((line) => /warning|unhandled|uncaught|"level":"(error|fatal)"/i.test(line));
  expect(bad, `${who} warned`).toEqual([]);
}

export async function timed(body: () => Promise<unknown>): Promise<number> {
  const since = performance.now();
  await body();
  return performance.now() - since;
}
