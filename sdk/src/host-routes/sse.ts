/**
 * `/v1/hosts/{host_id}/commands`: the command stream as server-sent events over plain HTTP/1.1, with JSON answers. For
 * what lies behind proxies that understand nothing else.
 */
import * as http from "node:http";
import * as https from "node:https";
import {
  type Command,
  CommandSchema,
  type DetachRequest,
  type EmitEventRequest,
  type EmitEventResponse,
  type HeartbeatRequest,
  type HeartbeatResponse,
  type HostAttachment,
  HostAttachmentSchema,
  type ReportOutcomeRequest,
  type ReportOutcomeResponse,
} from "@aexhq/brain-proto";
import { fromJsonString, type JsonValue, toJsonString } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { codeFromHttpStatus, errorFromJson } from "@connectrpc/connect/protocol-connect";
import type { Address } from "../connection.js";
import { brainErrorFrom } from "../errors.js";
import { EventReader } from "./event-reader.js";
import type { CommandStream, HostRoute } from "./route.js";
import { UnaryAnswers } from "./unary.js";

export class SseRoute implements HostRoute {
  readonly name = "sse";
  readonly #address: Address;
  readonly #answers: UnaryAnswers;

  constructor(address: Address) {
    this.#address = address;
    this.#answers = new UnaryAnswers(address, "json");
  }

  open(attachment: HostAttachment): CommandStream {
    return new EventStream(this.#address, this.#answers.agent, attachment);
  }

  hangUpAfter(ms: number): void {
    this.#answers.hangUpAfter(ms);
  }

  heartbeat(request: HeartbeatRequest): Promise<HeartbeatResponse> {
    return this.#answers.heartbeat(request);
  }

  emitEvent(request: EmitEventRequest): Promise<EmitEventResponse> {
    return this.#answers.emitEvent(request);
  }

  reportOutcome(request: ReportOutcomeRequest): Promise<ReportOutcomeResponse> {
    return this.#answers.reportOutcome(request);
  }

  detach(request: DetachRequest): Promise<void> {
    return this.#answers.detach(request);
  }

  close(): void {
    this.#answers.close();
  }
}

class EventStream implements CommandStream {
  readonly #address: Address;
  readonly #request: http.ClientRequest;
  readonly #response: Promise<http.IncomingMessage>;
  #dropped = false;

  constructor(address: Address, agent: http.Agent, attachment: HostAttachment) {
    this.#address = address;
    const body = toJsonString(HostAttachmentSchema, attachment);
    const url = `${address.baseUrl}/v1/hosts/${encodeURIComponent(attachment.hostId)}/commands`;
    const request = url.startsWith("https:") ? https.request : http.request;
    this.#request = request(url, {
      method: "POST",
      agent,
      headers: {
        Accept: "text/event-stream",
        "Content-Type": "application/json",
        "Content-Length": Buffer.byteLength(body),
        ...(address.token === undefined ? {} : { Authorization: `Bearer ${address.token}` }),
      },
    });
    this.#response = new Promise((resolve, reject) => {
      this.#request.on("response", resolve);
      this.#request.on("error", reject);
    });
    // A stream that is dropped before anyone reads it must not be an unhandled rejection.
    this.#response.catch(() => undefined);
    this.#request.end(body);
  }

  async read(take: (command: Command) => void): Promise<void> {
    try {
      const response = await this.#response;
      if (response.statusCode !== 200) throw await refusal(response);
      const events = new EventReader((data) => {
        if (!this.#dropped) take(fromJsonString(CommandSchema, data, { ignoreUnknownFields: true }));
      });
      for await (const chunk of response as AsyncIterable<Buffer>) {
        if (this.#dropped) return;
        events.feed(chunk);
      }
    } catch (thrown) {
      if (!this.#dropped) throw brainErrorFrom(networkAware(thrown), this.#address.baseUrl);
    } finally {
      this.drop();
    }
  }

  drop(): void {
    this.#dropped = true;
    this.#request.destroy();
  }
}

const REFUSAL_MAX_BYTES = 64 * 1024;

/** A refused attach, as the error that Connect would have made of it. */
async function refusal(response: http.IncomingMessage): Promise<ConnectError> {
  const status = response.statusCode ?? 0;
  const fallback = new ConnectError(`HTTP ${status}`, codeFromHttpStatus(status));
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > REFUSAL_MAX_BYTES) return fallback;
    chunks.push(chunk);
  }
  try {
    return errorFromJson(JSON.parse(Buffer.concat(chunks).toString()) as JsonValue, undefined, fallback);
  } catch {
    return fallback;
  }
}

function networkAware(thrown: unknown): unknown {
  if (thrown instanceof ConnectError || !(thrown instanceof Error)) return thrown;
  const error = new ConnectError(thrown.message, Code.Unavailable);
  error.cause = thrown;
  return error;
}
