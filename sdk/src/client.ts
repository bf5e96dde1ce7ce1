import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { type Clock, systemClock } from "./clock.js";
import { type Address, parseAddress } from "./connection.js";
import { checkName, type Environment, isEnvironment } from "./environments.js";
import { BrainError, invalidArgument } from "./errors.js";
import { HostConnection, type HostCredentials } from "./host.js";
import { RouteChoice } from "./host-routes/choice.js";
import type { HostRouteName } from "./host-routes/route.js";
import { Outbox } from "./outbox.js";
import { Requests } from "./requests.js";
import { ServedTools } from "./served-tools.js";
import { type PlacementHost, Sessions } from "./sessions.js";
import { declaredTool, isFunctionPlacement, type Placement, type ToolFactory } from "./tool.js";

/** How long creating a session or serving waits for Brain to hear of it; long enough to try every route. */
const ATTACH_WAIT_MS = 15_000;
const CLOSE_MS = 10_000;
const ROUTES: ReadonlySet<string> = new Set(["auto", "attach", "watch", "sse"]);

export interface BrainOptions {
  /** Where Brain listens, such as http://127.0.0.1:8080. */
  baseUrl: string;
  /** The API token, where the server asks for one. */
  token?: string;
  /** The host this process is; without it a new one is registered when the first function is to be served. */
  credentials?: HostCredentials;
  /** How commands come and answers go: "auto" finds the fastest that works here. */
  hostRoute?: HostRouteName | "auto";
  /**
   * A file that keeps finished outcomes until Brain has answered them, so that they survive a crash of this process: the
   * next process with the same file and credentials reports them. Needs `credentials`, and a file of its own for each
   * process; folders that are missing are made. Opened when the first function is to be served, and refused then with
   * `outbox_in_use` or `outbox_unusable`.
   */
  outbox?: string;
  /** Calls this process runs at a time; as many as Brain allows one process without it. */
  maxConcurrentCalls?: number;
  /** Gets a line for what people should know: lost streams, refused tokens. Standard error without it. */
  log?: (line: string) => void;
}

/**
 * Brain, as one process sees it: sessions to create and call, and functions held for Brain to run. One object, and one
 * connection, for all sessions of a process. Close it, or declare it with `await using`.
 */
export class Brain {
  readonly sessions: Sessions;
  readonly #address: Address;
  readonly #clock: Clock = systemClock;
  readonly #log: (line: string) => void;
  readonly #hostRoute: HostRouteName | "auto";
  readonly #maxConcurrentCalls: number;
  readonly #requests: Requests;
  readonly #served: ServedTools;
  readonly #registrationId = randomUUID();
  readonly #outboxPath: string | undefined;
  #outbox: Promise<Outbox> | undefined;
  #credentials: Promise<HostCredentials> | undefined;
  #host: HostConnection | undefined;
  #closing: Promise<void> | undefined;

  constructor(options: BrainOptions) {
    const { baseUrl, token, credentials, hostRoute = "auto", maxConcurrentCalls = 0, outbox, log } = options;
    if (!ROUTES.has(hostRoute)) {
      throw invalidArgument(`hostRoute "${hostRoute}" is unknown; use one of ${[...ROUTES].join(", ")}`);
    }
    if (!Number.isInteger(maxConcurrentCalls) || maxConcurrentCalls < 0) {
      throw invalidArgument(`maxConcurrentCalls ${maxConcurrentCalls} is no number of calls; give a whole number above 0`);
    }
    if (outbox !== undefined) checkOutbox(outbox, credentials);
    this.#outboxPath = outbox;
    this.#address = parseAddress(baseUrl, token);
    this.#hostRoute = hostRoute;
    this.#maxConcurrentCalls = maxConcurrentCalls;
    this.#log = log ?? ((line) => console.warn(`brain: ${line}`));
    this.#requests = new Requests(this.#address, this.#clock);
    this.#served = new ServedTools(credentials !== undefined);
    if (credentials !== undefined) {
      parseAddress(baseUrl, credentials.hostToken);
      this.#credentials = Promise.resolve({ ...credentials });
    }
    this.sessions = new Sessions(this.#requests, this.#placementHost());
  }

  /**
   * Holds functions for the whole process: for sessions that this or any other process creates on this host, now and
   * after a restart. Resolves once Brain knows, or after 15 s without it: this process then goes on trying.
   */
  async serve(options: { environment: string | Environment; tools: readonly Served[] }): Promise<void> {
    const environment = isEnvironment(options.environment) ? options.environment.name : options.environment;
    checkName("Environment", environment);
    const tools = options.tools.map(declaredTool);
    for (const tool of tools) this.#served.holdForProcess(environment, tool);
    await this.#attached();
  }

  /** The host this process is. Give it to other processes that shall serve the same sessions, and keep the token secret. */
  async credentials(): Promise<HostCredentials> {
    this.#served.share();
    return { ...(await this.#identity()) };
  }

  /**
   * Lets running functions finish (for `withinMs`, 10 s unless said otherwise, then aborts their signals), reports what
   * is still to be reported, leaves, and lets go of every connection. Calls and record iterators that still wait end.
   */
  async close(options: { withinMs?: number } = {}): Promise<void> {
    this.#closing ??= this.#close(options.withinMs ?? CLOSE_MS);
    await this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(withinMs: number): Promise<void> {
    await this.#host?.close(withinMs);
    this.#requests.close();
    const outbox = await this.#outbox?.catch(() => undefined);
    await outbox?.close();
  }

  #placementHost(): PlacementHost {
    return {
      hostId: async () => {
        // Before anything is created that would need it.
        await this.#openOutbox();
        return (await this.#identity()).hostId;
      },
      serve: (sessionId, placements) => this.#servePlacements(sessionId, placements),
      forget: (sessionId) => this.#served.forgetSession(sessionId),
    };
  }

  async #servePlacements(sessionId: string, placements: readonly Placement[]): Promise<void> {
    // Without a registered host, whatever names a host names another process's.
    const ownHostId = this.#credentials === undefined ? undefined : (await this.#identity()).hostId;
    const own = placements
      .filter(isFunctionPlacement)
      .filter(({ environment: { hostId } }) => hostId === undefined || hostId === ownHostId);
    if (own.length === 0) return;
    for (const { environment, tool } of own) this.#served.holdForSession(sessionId, environment.name, tool);
    await this.#attached();
  }

  async #identity(): Promise<HostCredentials> {
    this.#credentials ??= this.#register();
    try {
      return await this.#credentials;
    } catch (error) {
      this.#credentials = undefined;
      throw error;
    }
  }

  async #openOutbox(): Promise<Outbox | undefined> {
    const path = this.#outboxPath;
    if (path === undefined || this.#closing !== undefined) return await this.#outbox;
    const { hostId } = await this.#identity();
    this.#outbox ??= Outbox.open({ path, hostId, log: this.#log });
    try {
      return await this.#outbox;
    } catch (error) {
      this.#outbox = undefined;
      throw error;
    }
  }

  async #register(): Promise<HostCredentials> {
    const displayName = `${hostname()} ${process.pid}`;
    const { hostId, hostToken } = await this.#requests.send((options) =>
      this.#requests.hosts.registerHost({ displayName, requestId: this.#registrationId }, options),
    );
    return { hostId, hostToken };
  }

  async #attached(): Promise<void> {
    const { hostId, hostToken } = await this.#identity();
    const outbox = await this.#openOutbox();
    if (this.#closing !== undefined) {
      throw new BrainError("closed", "This Brain object is closed; make a new one to serve Tools");
    }
    this.#host ??= new HostConnection({
      hostId,
      routes: new RouteChoice(this.#hostRoute, { baseUrl: this.#address.baseUrl, token: hostToken }),
      served: this.#served,
      maxConcurrentCalls: this.#maxConcurrentCalls,
      outbox,
      clock: this.#clock,
      log: this.#log,
    });
    await this.#host.attached(ATTACH_WAIT_MS);
  }
}

function checkOutbox(path: unknown, credentials: HostCredentials | undefined): void {
  if (typeof path !== "string" || path === "") throw invalidArgument(`outbox ${JSON.stringify(path)} is no path; name a file`);
  if (credentials === undefined) {
    throw invalidArgument(
      `outbox ${path}: without credentials the next process would be another host, which cannot report what is in it; give credentials`,
    );
  }
  if (process.platform === "win32") throw invalidArgument(`outbox ${path}: there is no lock for it on Windows; leave it out`);
}

/** What `tool` returns, whatever its options are. */
// biome-ignore lint/suspicious/noExplicitAny: a factory's parameter is contravariant, and any options will do here.
type Served = ToolFactory<any>;
