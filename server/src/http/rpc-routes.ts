import { setMaxListeners } from "node:events";
import { Code, ConnectError, type ConnectRouter, createConnectRouter, type Interceptor } from "@connectrpc/connect";
import { createAsyncIterable, type UniversalServerResponse } from "@connectrpc/connect/protocol";
import { errorFromJsonBytes, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from "@connectrpc/connect-node";
import type { RefusalReason } from "../core/codes.js";
import { Refusal } from "../core/refusal.js";
import { refusalToConnectError } from "../rpc/connect-error.js";
import type { Log } from "../runtime/log.js";
import { type HttpRequest, type HttpResponse, pathOf } from "./exchange.js";
import { sendRefusal } from "./refusal-response.js";

export interface RpcRoutesOptions {
  readonly routes: (router: ConnectRouter) => void;
  /** The first is the outermost. */
  readonly interceptors: readonly Interceptor[];
  /** A request message as it is read, in bytes; the JSON of a message is longer than its binary form. */
  readonly requestBytes: number;
  /** A response message as it is written, in bytes: a last net, the services keep to less. */
  readonly responseBytes: number;
  /** Aborted when open streams must end. */
  readonly shutdownSignal: AbortSignal;
  readonly log: Log;
}

/** True when the path is an RPC's; the request is then answered. */
export type RpcRoutes = (req: HttpRequest, res: HttpResponse) => boolean;

/**
 * Connect, gRPC and gRPC-Web on the same paths, uncompressed. Connect's own adapter for Node does the same but
 * writes to the console, and arms a timer with whatever timeout a caller sends.
 */
export function createRpcRoutes(options: RpcRoutesOptions): RpcRoutes {
  // One listener for each open RPC is no leak.
  setMaxListeners(0, options.shutdownSignal);
  const router = createConnectRouter({
    interceptors: [...options.interceptors],
    acceptCompression: [],
    readMaxBytes: options.requestBytes,
    writeMaxBytes: options.responseBytes,
    shutdownSignal: options.shutdownSignal,
  });
  options.routes(router);
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));

  return (req, res) => {
    const handler = handlers.get(pathOf(req));
    if (handler === undefined) return false;
    dropEndlessTimeouts(req);
    handler(universalRequestFromNodeRequest(req, res, undefined, undefined))
      .then(async (response) => {
        const refusal = wrongForm(handler.requestPath, response.status);
        if (refusal !== undefined) {
          if (refusal.reason === "method_not_allowed") res.setHeader("Allow", "POST");
          sendRefusal(req, res, refusal, response.status);
        } else await universalResponseToNodeResponse(await withReason(response), res);
      })
      .catch((error: unknown) => {
        // Aborted is what a caller that has left looks like.
        const { code } = ConnectError.from(error);
        if (code !== Code.Aborted && code !== Code.Canceled)
          options.log.error({ err: error, rpc: handler.requestPath }, "answering an RPC failed");
        if (!res.writableEnded) res.destroy();
      });
    return true;
  };
}

/** setTimeout ends at once what should wait longer than this. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const GRPC_UNITS_MS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1000, m: 1, u: 1e-3, n: 1e-6 };

/**
 * A caller's timeout ends only its own waiting, and it counts it down itself. One that no timer can hold (25 days
 * and more) is therefore left to the caller. Anything malformed stays, to be refused as such.
 */
function dropEndlessTimeouts(req: HttpRequest): void {
  const connect = req.headers["connect-timeout-ms"];
  if (typeof connect === "string" && /^\d+$/.test(connect) && Number(connect) > LONGEST_TIMER_MS) delete req.headers["connect-timeout-ms"];
  const grpc = /^(\d{1,8})([HMSmun])$/.exec(String(req.headers["grpc-timeout"] ?? ""));
  if (grpc !== null && Number(grpc[1]) * (GRPC_UNITS_MS[grpc[2] ?? ""] ?? 0) > LONGEST_TIMER_MS) delete req.headers["grpc-timeout"];
}

/** What Connect answers with nothing but an HTTP status: a request that is no RPC in any of its protocols. */
function wrongForm(requestPath: string, httpStatus: number): Refusal | undefined {
  if (httpStatus === 405) {
    return new Refusal("method_not_allowed", `${requestPath} is an RPC, which is asked for by POST; send its message as the body`);
  }
  if (httpStatus === 415) {
    return new Refusal(
      "unsupported_media_type",
      `${requestPath} does not take this Content-Type; send 'Content-Type: application/json' with the message as JSON, or speak Connect, gRPC or gRPC-Web`,
    );
  }
  return undefined;
}

/** What Connect itself refuses, before any interceptor: a body that is no message, or too long. */
const UNREADABLE: Readonly<Partial<Record<Code, RefusalReason>>> = {
  [Code.InvalidArgument]: "invalid_argument",
  [Code.ResourceExhausted]: "request_too_large",
};

/** The same response; a unary refusal by Connect itself, which knows no reasons, gets the one that its code says. */
async function withReason(response: UniversalServerResponse): Promise<UniversalServerResponse> {
  const { status, header, body } = response;
  if (status === 200 || header?.get("content-type") !== "application/json" || body === undefined) return response;
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  let bytes: Uint8Array = Buffer.concat(chunks);
  const error = errorFromJsonBytes(bytes, undefined, new ConnectError("", Code.Unknown));
  const reason = UNREADABLE[error.code];
  if (reason !== undefined && error.details.length === 0) {
    bytes = errorToJsonBytes(refusalToConnectError(new Refusal(reason, error.rawMessage)), undefined);
    header.set("content-length", String(bytes.byteLength));
  }
  return { ...response, body: createAsyncIterable([bytes]) };
}
