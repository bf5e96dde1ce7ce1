import type * as http from "node:http";
import {
  type DetachRequest,
  type EmitEventRequest,
  type EmitEventResponse,
  type HeartbeatRequest,
  type HeartbeatResponse,
  HostService,
  type ReportOutcomeRequest,
  type ReportOutcomeResponse,
} from "@aexhq/brain-proto";
import { type Client, createClient } from "@connectrpc/connect";
import { systemClock } from "../clock.js";
import { type Address, createAgent, http1Transport } from "../connection.js";
import { BrainError, brainErrorFrom } from "../errors.js";

/** Three heartbeats, as Brain asks for them unless its operator says otherwise. */
const PATIENCE_MS = 15_000;
/** A slow line gets more time with every attempt, up to so many times the first. */
const MOST_PATIENCE = 64;

/**
 * The unary RPCs of a host, shared by the routes whose stream carries commands only.
 *
 * A connection may die without a word, and the request on it would wait for ever while the stream of commands, on
 * another one, is well. What is not answered in time is given up as `unavailable`: its repeat takes a new connection.
 */
export class UnaryAnswers {
  readonly agent: http.Agent;
  readonly client: Client<typeof HostService>;
  readonly #baseUrl: string;
  readonly #open = new Set<AbortController>();
  #patienceMs = PATIENCE_MS;
  /** Doubled by every request that was given up, until one is answered. */
  #times = 1;
  #closed = false;

  constructor(address: Address, format: "binary" | "json") {
    this.#baseUrl = address.baseUrl;
    this.agent = createAgent(address);
    this.client = createClient(HostService, http1Transport(address, this.agent, format));
  }

  hangUpAfter(ms: number): void {
    this.#patienceMs = ms;
  }

  heartbeat(request: HeartbeatRequest): Promise<HeartbeatResponse> {
    return this.#send((signal) => this.client.heartbeat(request, { signal }));
  }

  emitEvent(request: EmitEventRequest): Promise<EmitEventResponse> {
    return this.#send((signal) => this.client.emitEvent(request, { signal }));
  }

  reportOutcome(request: ReportOutcomeRequest): Promise<ReportOutcomeResponse> {
    return this.#send((signal) => this.client.reportOutcome(request, { signal }));
  }

  async detach(request: DetachRequest): Promise<void> {
    await this.#send((signal) => this.client.detach(request, { signal }));
  }

  close(): void {
    this.#closed = true;
    for (const controller of this.#open) controller.abort();
    this.agent.destroy();
  }

  async #send<T>(send: (signal: AbortSignal) => Promise<T>): Promise<T> {
    if (this.#closed) throw new BrainError("closed", "This Brain object was closed before the request was answered");
    // One controller a request: connections made from a long-lived signal would leave their listeners on it.
    const controller = new AbortController();
    this.#open.add(controller);
    const patienceMs = this.#patienceMs * this.#times;
    let isGivenUp = false;
    const disarm = systemClock.after(patienceMs, () => {
      isGivenUp = true;
      controller.abort();
    });
    try {
      const answer = await send(controller.signal);
      this.#times = 1;
      return answer;
    } catch (thrown) {
      if (isGivenUp && !this.#closed) {
        this.#times = Math.min(this.#times * 2, MOST_PATIENCE);
        throw new BrainError("unavailable", `Brain at ${this.#baseUrl} did not answer within ${patienceMs} ms`);
      }
      if (this.#closed) throw new BrainError("closed", "This Brain object was closed before the request was answered");
      throw brainErrorFrom(thrown, this.#baseUrl);
    } finally {
      disarm();
      this.#open.delete(controller);
    }
  }
}
