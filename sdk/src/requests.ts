import type * as http from "node:http";
import { HostService, SessionService, ToolCallService } from "@aexhq/brain-proto";
import { type Client, createClient } from "@connectrpc/connect";
import { Backoff } from "./backoff.js";
import { type Clock, wait } from "./clock.js";
import { type Address, createAgent, http1Transport } from "./connection.js";
import { BrainError, brainErrorFrom, isTransient } from "./errors.js";

/** How often a request is made in all, when nobody answers. Every request of this package may be repeated. */
const ATTEMPTS = 3;

/** The requests of a caller, with the API token. */
export class Requests {
  readonly clock: Clock;
  readonly sessions: Client<typeof SessionService>;
  readonly toolCalls: Client<typeof ToolCallService>;
  readonly hosts: Client<typeof HostService>;
  readonly #baseUrl: string;
  readonly #agent: http.Agent;
  readonly #open = new Set<AbortController>();
  #isClosed = false;

  constructor(address: Address, clock: Clock) {
    this.clock = clock;
    this.#baseUrl = address.baseUrl;
    this.#agent = createAgent(address);
    const transport = http1Transport(address, this.#agent);
    this.sessions = createClient(SessionService, transport);
    this.toolCalls = createClient(ToolCallService, transport);
    this.hosts = createClient(HostService, transport);
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Makes one request; rejects with a BrainError. */
  async once<T>(send: (options: { signal: AbortSignal }) => Promise<T>): Promise<T> {
    const controller = this.open();
    try {
      return await send({ signal: controller.signal });
    } catch (thrown) {
      throw this.failed(thrown);
    } finally {
      this.settle(controller);
    }
  }

  /** Makes a request, and a few times more while nobody answers. */
  async send<T>(send: (options: { signal: AbortSignal }) => Promise<T>): Promise<T> {
    const backoff = new Backoff();
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.once(send);
      } catch (thrown) {
        const error = brainErrorFrom(thrown, this.#baseUrl);
        if (!isTransient(error) || attempt === ATTEMPTS) throw error;
        await wait(this.clock, backoff.next());
      }
    }
  }

  /** A controller that `close` aborts. One for each request: a long-lived signal would gather their listeners. */
  open(): AbortController {
    if (this.#isClosed) throw closed();
    const controller = new AbortController();
    this.#open.add(controller);
    return controller;
  }

  settle(controller: AbortController): void {
    this.#open.delete(controller);
  }

  failed(thrown: unknown): BrainError {
    return this.#isClosed ? closed() : brainErrorFrom(thrown, this.#baseUrl);
  }

  close(): void {
    this.#isClosed = true;
    for (const controller of this.#open) controller.abort();
    this.#agent.destroy();
  }
}

function closed(): BrainError {
  return new BrainError("closed", "This Brain object was closed; calls it was waiting for go on in Brain");
}
