import { type Command, CommandSchema, type HostAttachment, HostAttachmentSchema } from "@aexhq/brain-proto";
import { create, fromJson, type JsonValue, toJsonString } from "@bufbuild/protobuf";
import { errorToJson } from "@connectrpc/connect/protocol-connect";
import { quote } from "../core/names.js";
import { invalidArgument, Refusal } from "../core/refusal.js";
import { type Authenticate, requireHost } from "../rpc/authorize.js";
import { isRefusal, toConnectError } from "../rpc/connect-error.js";
import type { Clock } from "../runtime/clock.js";
import type { Log } from "../runtime/log.js";
import { type HttpRequest, type HttpResponse, pathOf } from "./exchange.js";
import { sendRefusal } from "./refusal-response.js";
import { readJsonBody } from "./request-body.js";
import { openEventStream } from "./sse.js";

export interface HostCommandsOptions {
  readonly authenticate: Authenticate;
  /**
   * The commands for this instance, the first one at once. Ends when `signal` is aborted.
   * Throws a Refusal, before the first command or later.
   */
  attach(hostId: string, attachment: HostAttachment, signal: AbortSignal): AsyncIterable<Command>;
  /** Aborted when open streams must end. */
  readonly shutdownSignal: AbortSignal;
  readonly clock: Clock;
  readonly log: Log;
  readonly limits: {
    readonly commentEveryMs: number;
    /** A HostAttachment as JSON. */
    readonly requestBytes: number;
  };
}

/** True when the path is this route's; the request is then answered. */
export type HostCommands = (req: HttpRequest, res: HttpResponse) => boolean;

const PATH = /^\/v1\/hosts\/([^/]+)\/commands$/;

/**
 * `/v1/hosts/{host_id}/commands`: WatchCommands as server-sent events, for browsers and through proxies. GET names
 * its instance in the query, POST sends a HostAttachment as JSON. Each event is one Command in proto3 JSON. A stream
 * that is refused later ends with one event named `refusal`, whose data is the JSON of a Connect error.
 */
export function createHostCommands(options: HostCommandsOptions): HostCommands {
  return (req, res) => {
    const match = PATH.exec(pathOf(req));
    if (match === null) return false;
    const left = new AbortController();
    serve(options, match[1] ?? "", req, res, left).catch((error: unknown) => {
      if (isRefusal(error)) sendRefusal(req, res, error, HTTP_STATUS[error.reason]);
      else fail(options.log, req, res, error, left.signal);
    });
    return true;
  };
}

const HTTP_STATUS: Readonly<Partial<Record<Refusal["reason"], number>>> = {
  method_not_allowed: 405,
  request_too_large: 413,
  unsupported_media_type: 415,
};

function fail(log: Log, req: HttpRequest, res: HttpResponse, error: unknown, left: AbortSignal): void {
  const where = "/v1/hosts/{host_id}/commands";
  const { rawMessage } = toConnectError(error, where, left, log);
  if (res.headersSent) res.destroy();
  else sendRefusal(req, res, new Refusal("internal", rawMessage));
}

async function serve(
  options: HostCommandsOptions,
  hostSegment: string,
  req: HttpRequest,
  res: HttpResponse,
  left: AbortController,
): Promise<void> {
  if (req.method !== "GET" && req.method !== "POST") {
    res.setHeader("Allow", "GET, POST");
    throw new Refusal(
      "method_not_allowed",
      `${quote(req.method ?? "")} is not served here; use GET with instance_id, or POST with a HostAttachment`,
    );
  }
  const hostId = decodeSegment(hostSegment);
  requireHost(await options.authenticate(req.headers), hostId);
  const attachment =
    req.method === "GET" ? attachmentOfQuery(hostId, req) : await attachmentOfBody(hostId, req, options.limits.requestBytes);

  if (options.shutdownSignal.aborted) throw new Refusal("server_draining", "this server is stopping; attach to another, or later");
  const end = (): void => left.abort();
  res.once("close", end);
  options.shutdownSignal.addEventListener("abort", end);
  if (res.destroyed) end();
  const commands = options.attach(hostId, attachment, left.signal)[Symbol.asyncIterator]();
  try {
    // Asked for before the headers go out, so that a refusal still has its HTTP status.
    let next = await commands.next();
    const stream = openEventStream(res, { commentEveryMs: options.limits.commentEveryMs, clock: options.clock });
    try {
      while (next.done !== true && (await stream.write({ data: toJsonString(CommandSchema, next.value) }))) {
        next = await commands.next();
      }
    } catch (error) {
      if (!left.signal.aborted) {
        const refusal = toConnectError(error, "the command stream", left.signal, options.log);
        await stream.write({ event: "refusal", data: JSON.stringify(errorToJson(refusal, undefined)) });
      }
    } finally {
      stream.close();
    }
  } finally {
    end();
    options.shutdownSignal.removeEventListener("abort", end);
    // Where it waits for its own next command, it has ended by the signal.
    commands.return?.().catch(() => {});
  }
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw invalidArgument("host_id", `${quote(segment)} is not percent-encoded UTF-8; encode the host_id`);
  }
}

function attachmentOfQuery(hostId: string, req: HttpRequest): HostAttachment {
  const query = new URLSearchParams((req.url ?? "").split("?").slice(1).join("?"));
  const instanceId = query.get("instance_id") ?? "";
  if (instanceId === "")
    throw invalidArgument("instance_id", "is missing from the query; make one up for this process and add ?instance_id=...");
  return create(HostAttachmentSchema, {
    hostId,
    instanceId,
    generation: uint32(query, "generation"),
    maxConcurrentCalls: uint32(query, "max_concurrent_calls"),
  });
}

function uint32(query: URLSearchParams, name: string): number {
  const text = query.get(name);
  if (text === null) return 0;
  const value = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value <= 0xffff_ffff)) throw invalidArgument(name, `${quote(text)} is no whole number from 0 to ${0xffff_ffff}`);
  return value;
}

async function attachmentOfBody(hostId: string, req: HttpRequest, maxBytes: number): Promise<HostAttachment> {
  const json = (await readJsonBody(req, maxBytes)) as JsonValue;
  let attachment: HostAttachment;
  try {
    attachment = fromJson(HostAttachmentSchema, json, { ignoreUnknownFields: true });
  } catch (error) {
    const why = error instanceof Error ? error.message.slice(0, 512) : "";
    throw invalidArgument("body", `is no HostAttachment in proto3 JSON (${why}); see brain/v1/host_service.proto`);
  }
  if (attachment.hostId !== "" && attachment.hostId !== hostId) {
    throw invalidArgument("host_id", `the body names ${quote(attachment.hostId)} and the path ${quote(hostId)}; let them agree`);
  }
  attachment.hostId = hostId;
  return attachment;
}
