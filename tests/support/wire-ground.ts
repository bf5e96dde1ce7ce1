/** A server that is asked over plain JSON, and one Tool served by this process, to see that it lives on. */
import { Brain, hostEnv, jsonSchema, tool } from "@aexhq/brain";
import { expect } from "vitest";
import { expectNoWarnings, timed } from "./case-ground.js";
import { ConnectJson, type Json, type JsonAnswer } from "./connect-json.js";
import { ServerProcess } from "./server-process.js";

export class WireGround {
  readonly token: string;
  readonly server: ServerProcess;
  readonly wire: ConnectJson;
  /** Serves Tool `echo` in Environment `app`. */
  readonly brain: Brain;
  /** How often `echo` ran, in all. */
  runs = 0;
  readonly #echo = tool({
    name: "echo",
    description: "",
    input: jsonSchema(true),
    run: (input) => {
      this.runs++;
      return input;
    },
  });

  private constructor(server: ServerProcess, token: string) {
    this.server = server;
    this.token = token;
    this.wire = new ConnectJson(server.url, token);
    this.brain = new Brain({ baseUrl: server.url, token });
  }

  static async open(): Promise<WireGround> {
    const token = "a-token-that-no-log-shows";
    return new WireGround(await ServerProcess.start({ apiToken: token, flags: ["--host-wait", "300ms"] }), token);
  }

  async createSession(): Promise<string> {
    return (await this.brain.sessions.create({ tools: [this.#echo({ env: hostEnv({ name: "app" }) })] })).sessionId;
  }

  /** A session whose Tool `echo` is another host's. */
  async createSessionOf(hostId: string, definition: Json = {}): Promise<string> {
    const { session } = await this.wire.ask("SessionService/CreateSession", {
      environments: [{ name: "app", host: { hostId } }],
      tools: [{ tool: { name: "echo", inputSchemaJson: "true", ...definition }, environment: "app", implementation: { hostFunction: {} } }],
    });
    return session.sessionId;
  }

  callTool(request: Json): Promise<Json> {
    return this.wire.ask("ToolCallService/CallTool", { callId: crypto.randomUUID(), name: "echo", environment: "app", ...request });
  }

  async lastSequence(sessionId: string): Promise<number> {
    return (await this.wire.ask("SessionService/GetSession", { sessionId })).session.lastSequence;
  }

  async sessionCount(): Promise<number> {
    return (await this.wire.ask("SessionService/ListSessions", { pageSize: 1000 })).sessions?.length ?? 0;
  }

  /** Whatever was tried before, the next one is served as if nothing had been. */
  async expectAlive(): Promise<void> {
    const ms = await timed(async () => {
      const sessionId = await this.createSession();
      const { outcome } = await this.callTool({ sessionId, inputJson: '{"alive":true}' });
      expect(outcome).toEqual({ ok: { valueJson: '{"alive":true}' } });
      expect(await this.lastSequence(sessionId)).toBe(3);
    });
    expect(ms, "ms of a plain call afterwards").toBeLessThan(2_000);
  }

  /** Stops everything; the server must have nothing to complain of, and no token in what it said. */
  async close(): Promise<void> {
    await this.brain.close();
    expect(await this.server.stop()).toBe(0);
    expectNoWarnings("the server", this.server.stderr);
    expect(this.server.stderr.join("\n")).not.toContain(this.token);
    await this.server[Symbol.asyncDispose]();
  }
}

/** A refusal has its reason, and a message that says more than that, so that a person knows what to do. */
export function expectRefused(answer: JsonAnswer, httpStatus: number, reason: string, metadata: Record<string, unknown> = {}): void {
  const { message } = answer;
  expect({ httpStatus: answer.httpStatus, reason: answer.reason, metadata: answer.metadata }, message).toMatchObject({
    httpStatus,
    reason,
    metadata,
  });
  expect(message.length).toBeGreaterThan(10);
}
