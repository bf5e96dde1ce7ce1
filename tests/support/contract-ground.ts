/**
 * The ground of the cases about what a Tool's contract says: the functions run in this process, counted in a file, and
 * everything else is that of the other cases.
 */
import { Brain, type Environment, hostEnv, type JournalRecord, type Placement, type Session } from "@aexhq/brain";
import { expect } from "vitest";
import { CaseGround } from "./case-ground.js";
import { ConnectJson, type Json } from "./connect-json.js";
import { CountedRuns } from "./counted-runs.js";

export class ContractGround {
  readonly cases: CaseGround;
  readonly wire: ConnectJson;
  readonly runs = new CountedRuns();
  /** The Environment of this process's functions. */
  readonly here = hostEnv({ name: "here" });
  /** The caller, and the host of what is placed `here`. It says nothing of the restarts. */
  readonly brain: Brain;
  #unchecked: Session[] = [];

  private constructor(cases: CaseGround) {
    this.cases = cases;
    this.wire = new ConnectJson(cases.server.url, cases.token);
    this.brain = new Brain({ baseUrl: cases.server.url, token: cases.token, log: () => undefined });
  }

  static async open(): Promise<ContractGround> {
    return new ContractGround(await CaseGround.open());
  }

  async session(...tools: Placement[]): Promise<Session> {
    const session = await this.brain.sessions.create({ tools });
    this.#unchecked.push(session);
    return session;
  }

  /** Calls with JSON text that no library has written. Resolves with the call as it is on record. */
  async callRaw(session: Session, name: string, inputJson: string, environment: string | Environment = this.here): Promise<RawCall> {
    const where = typeof environment === "string" ? environment : environment.name;
    const request = { sessionId: session.sessionId, callId: crypto.randomUUID(), name, environment: where, inputJson };
    const answer = await this.wire.post("ToolCallService/CallTool", request);
    expect(answer.httpStatus, answer.message).toBe(200);
    const { callSequence, outcome } = answer.body as Json;
    const [status = ""] = Object.keys(outcome);
    return { callSequence, status, ...outcome[status], runs: this.runs.of(session.sessionId, callSequence) };
  }

  /** What the function of a call was given and what came of it, as the journal has them. */
  async texts(session: Session): Promise<{ inputs: string[]; events: string[]; outputs: string[] }> {
    const records = await this.cases.records(session);
    const pick = (from: (entry: JournalRecord["entry"]) => string | undefined): string[] =>
      records.flatMap(({ entry }) => from(entry) ?? []);
    return {
      inputs: pick((entry) => (entry.case === "toolCallStarted" ? entry.value.inputJson : undefined)),
      events: pick((entry) => (entry.case === "eventEmitted" ? entry.value.dataJson : undefined)),
      outputs: pick((entry) => {
        const status = entry.case === "toolCallEnded" ? entry.value.outcome?.status : undefined;
        return status?.case === "ok" ? status.value.valueJson : undefined;
      }),
    };
  }

  /** The standing checks on every session since the last time, for the functions of this process too. */
  async expectStanding(): Promise<void> {
    const sessions = this.#unchecked;
    this.#unchecked = [];
    await this.cases.expectStanding(...sessions);
    expect(this.runs.repeated, "calls that ran more than once").toEqual([]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.brain.close();
    await this.cases[Symbol.asyncDispose]();
    this.runs[Symbol.dispose]();
  }
}

/** The ending of a call as proto3 JSON has it, flat, with how often its function ran. */
export interface RawCall {
  readonly callSequence: number;
  readonly status: string;
  readonly valueJson?: string;
  readonly code?: string;
  readonly message?: string;
  readonly detailsJson?: string;
  readonly runs: number;
}
