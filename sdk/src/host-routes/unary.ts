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
import { type Address, createAgent, http1Transport } from "../connection.js";
import { BrainError, brainErrorFrom } from "../errors.js";

/** The unary RPCs of a host, shared by the routes whose stream carries commands only. */
export class UnaryAnswers {
  readonly agent: http.Agent;
  readonly client: Client<typeof HostService>;
  readonly #baseUrl: string;
  readonly #open = new Set<AbortController>();
  #closed = false;

  constructor(address: Address, format: "binary" | "json") {
    this.#baseUrl = address.baseUrl;
    this.agent = createAgent(address);
    this.client = createClient(HostService, http1Transport(address, this.agent, format));
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
    try {
      return await send(controller.signal);
    } catch (thrown) {
      if (this.#closed) throw new BrainError("closed", "This Brain object was closed before the request was answered");
      throw brainErrorFrom(thrown, this.#baseUrl);
    } finally {
      this.#open.delete(controller);
    }
  }
}
