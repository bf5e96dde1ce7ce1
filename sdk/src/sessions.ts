import { randomUUID } from "node:crypto";
import { type Session as SessionMessage, SessionState, type SessionSummary, type ToolCall as ToolCallMessage } from "@aexhq/brain-proto";
import { durationFromMs, durationMs, timestampDate } from "@bufbuild/protobuf/wkt";
import { callTool } from "./call-tool.js";
import { type Environment, isEnvironment } from "./environments.js";
import { BrainError, invalidArgument } from "./errors.js";
import { toJsonText, VALUE_MAX_BYTES } from "./json.js";
import { type Outcome, outcomeFromWire } from "./outcome.js";
import { checkPlacements, placementMessages } from "./placements.js";
import { followRecords, type JournalRecords } from "./records.js";
import type { Requests } from "./requests.js";
import type { Placement } from "./tool.js";

/** Of a session that Brain does not say it of. */
const DEFAULT_TIMEOUT_MS = 120_000;

/** How a session's Tools come to be served by this process. */
export interface PlacementHost {
  /** The host of this process, registered if need be. */
  hostId(): Promise<string>;
  serve(sessionId: string, placements: readonly Placement[]): Promise<void>;
  forget(sessionId: string): void;
}

export interface CreateSessionOptions {
  /** The Tools of the session, each placed in an Environment. Never changes afterwards. */
  tools: readonly Placement[];
  /** Your own marks, to find the session by. */
  labels?: Readonly<Record<string, string>>;
  /** For calls that give none; Brain's default (120 s, unless its operator says otherwise) without it. */
  defaultToolTimeoutMs?: number;
  /** Makes creation repeatable: the same id with the same content answers the same session. */
  requestId?: string;
}

export interface ListSessionsOptions {
  /** Only sessions that carry all of these. */
  labels?: Readonly<Record<string, string>>;
  state?: "open" | "ended";
  /** At most 1,000. */
  pageSize?: number;
  /** `nextPageToken` of the page before, with the same filters. */
  pageToken?: string;
}

export interface SessionPage {
  readonly sessions: readonly SessionSummary[];
  /** Empty on the last page. */
  readonly nextPageToken: string;
}

/** Creates sessions and finds them again. */
export class Sessions {
  readonly #requests: Requests;
  readonly #host: PlacementHost;

  constructor(requests: Requests, host: PlacementHost) {
    this.#requests = requests;
    this.#host = host;
  }

  /** Creates a session and serves, from this process, those of its Tools whose functions it holds. */
  async create(options: CreateSessionOptions): Promise<Session> {
    const { tools, labels = {}, defaultToolTimeoutMs, requestId = randomUUID() } = options;
    checkPlacements(tools);
    const isOwnHost = tools.some(({ environment }) => environment.kind === "host" && environment.hostId === undefined);
    const message = await placementMessages(tools, isOwnHost ? await this.#host.hostId() : "");
    const timeout =
      defaultToolTimeoutMs === undefined ? {} : { defaultToolTimeout: durationFrom("defaultToolTimeoutMs", defaultToolTimeoutMs) };
    const { session } = await this.#requests.send((options) =>
      this.#requests.sessions.createSession({ requestId, ...message, ...timeout, labels: { ...labels } }, options),
    );
    return await this.#open(session, tools);
  }

  /** Finds a session. With `tools`, this process serves them in it, whoever created it. */
  async get(sessionId: string, options: { tools?: readonly Placement[] } = {}): Promise<Session> {
    const { tools = [] } = options;
    checkPlacements(tools);
    const { session } = await this.#requests.send((options) => this.#requests.sessions.getSession({ sessionId }, options));
    return await this.#open(session, tools);
  }

  /** One page of sessions, newest first. */
  async list(options: ListSessionsOptions = {}): Promise<SessionPage> {
    const { labels = {}, state, pageSize = 0, pageToken = "" } = options;
    const filter = state === undefined ? SessionState.UNSPECIFIED : state === "open" ? SessionState.OPEN : SessionState.ENDED;
    const { sessions, nextPageToken } = await this.#requests.send((options) =>
      this.#requests.sessions.listSessions({ labels: { ...labels }, state: filter, pageSize, pageToken }, options),
    );
    return { sessions, nextPageToken };
  }

  async #open(message: SessionMessage | undefined, tools: readonly Placement[]): Promise<Session> {
    if (message === undefined) throw new BrainError("unavailable", "Brain answered without the session; update it");
    if (tools.length > 0) await this.#host.serve(message.sessionId, tools);
    const { defaultToolTimeout } = message;
    const timeoutMs = defaultToolTimeout === undefined ? DEFAULT_TIMEOUT_MS : durationMs(defaultToolTimeout);
    return new Session(this.#requests, this.#host, message.sessionId, timeoutMs);
  }
}

export interface CallToolOptions {
  /** Your own name of the call, which makes calling repeatable: the same name and content is the same call. */
  callId?: string;
  /** The Tool. */
  name: string;
  /** Which of its placements. */
  environment: string | Environment;
  /** Any JSON value of at most 1 MiB. */
  input?: unknown;
  /** From the moment the request arrives in Brain; the session's default without it. */
  timeoutMs?: number;
  /** Cancels the call; the promise then still resolves with the recorded ending. */
  signal?: AbortSignal;
}

/** A call as Brain knows it. */
export interface ToolCall {
  readonly callSequence: number;
  readonly callId: string;
  readonly name: string;
  readonly environment: string;
  readonly deadline: Date | undefined;
  /** Undefined while the call runs. */
  readonly outcome: Outcome | undefined;
  readonly endSequence: number | undefined;
  /** What the function reported after the call had ended otherwise. */
  readonly lateOutcome: Outcome | undefined;
  /** The process the call was sent to. */
  readonly instanceId: string | undefined;
}

/** A call is named by its caller's `callId` or by its sequence. */
export type ToolCallName = { callId: string } | { callSequence: number };

/** A session in Brain. Holds nothing but its name: any number of these may stand for one session. */
export class Session {
  readonly sessionId: string;
  readonly #requests: Requests;
  readonly #host: PlacementHost;
  readonly #defaultTimeoutMs: number;

  constructor(requests: Requests, host: PlacementHost, sessionId: string, defaultTimeoutMs: number) {
    this.sessionId = sessionId;
    this.#requests = requests;
    this.#host = host;
    this.#defaultTimeoutMs = defaultTimeoutMs;
  }

  /**
   * Calls a Tool and waits for the ending, over lost connections and restarts of Brain. A call that fails resolves with
   * a failed Outcome; what rejects is a request that was refused, with a BrainError.
   */
  async callTool<T = unknown>(options: CallToolOptions): Promise<Outcome<T>> {
    const { callId = randomUUID(), name, environment, input, timeoutMs, signal } = options;
    const { sessionId } = this;
    const inputJson = toJsonText(input, VALUE_MAX_BYTES);
    if (!inputJson.ok) {
      const where = inputJson.path === "" ? "" : `at ${inputJson.path}: `;
      throw invalidArgument(`The input of Tool "${name}" cannot travel: ${where}${inputJson.problem}`);
    }
    const { outcome } = await callTool(
      this.#requests,
      {
        sessionId,
        callId,
        name,
        environment: isEnvironment(environment) ? environment.name : environment,
        inputJson: inputJson.text,
        ...(timeoutMs === undefined ? {} : { timeout: durationFrom("timeoutMs", timeoutMs) }),
      },
      timeoutMs ?? this.#defaultTimeoutMs,
      signal,
    );
    return outcomeFromWire<T>(outcome);
  }

  /** Reads one call. */
  async getToolCall(call: ToolCallName): Promise<ToolCall> {
    const { toolCall } = await this.#requests.send((options) =>
      this.#requests.toolCalls.getToolCall({ sessionId: this.sessionId, by: named(call) }, options),
    );
    return toolCallFrom(toolCall);
  }

  /** Ends a running call as cancelled and reads it; one that has ended stays as it is. */
  async cancelToolCall(call: ToolCallName & { reason?: string }): Promise<ToolCall> {
    const { toolCall } = await this.#requests.send((options) =>
      this.#requests.toolCalls.cancelToolCall({ sessionId: this.sessionId, by: named(call), reason: call.reason ?? "" }, options),
    );
    return toolCallFrom(toolCall);
  }

  /**
   * Every record after the sequence `after` (0: all), then each new one as it is committed. Ends when the session is
   * deleted, or when it is left; a lost connection does not end it.
   */
  records(after = 0): JournalRecords {
    return followRecords(this.#requests, this.sessionId, after);
  }

  /** The session with its catalogue, as Brain has it. */
  async describe(): Promise<SessionMessage> {
    const { session } = await this.#requests.send((options) => this.#requests.sessions.getSession({ sessionId: this.sessionId }, options));
    if (session === undefined) throw new BrainError("unavailable", "Brain answered without the session; update it");
    return session;
  }

  /** Ends the session: calls that run end as cancelled, and nothing more can be called. Its records stay. */
  async end(): Promise<void> {
    await this.#requests.send((options) => this.#requests.sessions.endSession({ sessionId: this.sessionId }, options));
    this.#host.forget(this.sessionId);
  }

  /** Deletes the session for good, with its records. */
  async delete(): Promise<void> {
    await this.#requests.send((options) => this.#requests.sessions.deleteSession({ sessionId: this.sessionId }, options));
    this.#host.forget(this.sessionId);
  }
}

function named(call: ToolCallName): { case: "callId"; value: string } | { case: "callSequence"; value: number } {
  return "callId" in call ? { case: "callId", value: call.callId } : { case: "callSequence", value: call.callSequence };
}

function toolCallFrom(message: ToolCallMessage | undefined): ToolCall {
  if (message === undefined) throw new BrainError("unavailable", "Brain answered without the call; update it");
  const { callSequence, callId, name, environment, deadline, outcome, endSequence, lateOutcome, instanceId } = message;
  return {
    callSequence,
    callId,
    name,
    environment,
    deadline: deadline === undefined ? undefined : timestampDate(deadline),
    outcome: outcome === undefined ? undefined : outcomeFromWire(outcome),
    endSequence,
    lateOutcome: lateOutcome === undefined ? undefined : outcomeFromWire(lateOutcome),
    instanceId,
  };
}

/** Milliseconds are rounded up: no call gets less time than was asked for. */
function durationFrom(field: string, milliseconds: number): ReturnType<typeof durationFromMs> {
  if (typeof milliseconds !== "number" || !Number.isFinite(milliseconds) || milliseconds <= 0) {
    throw invalidArgument(`${field} ${String(milliseconds)} is no time; give milliseconds above 0`);
  }
  return durationFromMs(Math.ceil(milliseconds));
}
