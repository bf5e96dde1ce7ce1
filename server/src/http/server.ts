import { ErrorReasonSchema } from "@aexhq/brain-proto";
import type { ConnectRouter } from "@connectrpc/connect";
import { quote } from "../core/names.js";
import { Refusal } from "../core/refusal.js";
import { type Authenticate, authorize, requireApi, SERVED_SERVICES } from "../rpc/authorize.js";
import { isRefusal, refusals, toConnectError } from "../rpc/connect-error.js";
import type { ServerHealth } from "../rpc/health.js";
import { registerReflection } from "../rpc/reflection.js";
import type { Clock } from "../runtime/clock.js";
import type { Log } from "../runtime/log.js";
import { type HttpHandler, type HttpRequest, type HttpResponse, pathOf } from "./exchange.js";
import type { Guard } from "./guard.js";
import { createHostCommands, type HostCommandsOptions } from "./host-commands.js";
import { countRpcs, type Metrics } from "./metrics.js";
import { sendRefusal } from "./refusal-response.js";
import { createRpcRoutes } from "./rpc-routes.js";

export interface HttpHandlerOptions {
  /** Registers SessionService, ToolCallService and HostService; health and reflection are added here. */
  readonly routes: (router: ConnectRouter) => void;
  readonly guard: Guard;
  readonly authenticate: Authenticate;
  /** What `/v1/hosts/{host_id}/commands` streams. */
  readonly attach: HostCommandsOptions["attach"];
  readonly health: ServerHealth;
  readonly metrics: Metrics;
  /** Aborted when open streams must end: after draining, before the listener is closed. */
  readonly shutdownSignal: AbortSignal;
  readonly version: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly limits: {
    readonly commentEveryMs: number;
    /** A request as it is read, in bytes. */
    readonly requestBytes: number;
    /** A response message as it is written, in bytes. */
    readonly responseBytes: number;
  };
}

/** Everything the port answers: guard, then `/v1`, health, metrics and the front page, then the RPCs. */
export function createHttpHandler(options: HttpHandlerOptions): HttpHandler {
  const { guard, authenticate, health, metrics, log, limits } = options;
  const hostCommands = createHostCommands({
    authenticate,
    attach: options.attach,
    shutdownSignal: options.shutdownSignal,
    clock: options.clock,
    log,
    limits,
  });
  const rpcRoutes = createRpcRoutes({
    routes: (router) => {
      options.routes(router);
      health.register(router);
      registerReflection(router, SERVED_SERVICES, [ErrorReasonSchema]);
    },
    interceptors: [countRpcs(metrics), refusals(log), authorize(authenticate)],
    requestBytes: limits.requestBytes,
    responseBytes: limits.responseBytes,
    shutdownSignal: options.shutdownSignal,
    log,
  });
  const frontPage = describe(options.version);

  return (req, res) => {
    if (!guard(req, res)) return;
    const path = pathOf(req);
    if (rpcRoutes(req, res)) return;
    if (path.startsWith("/v1/") && hostCommands(req, res)) return;
    if (path === "/healthz" || path === "/metrics" || path === "/") {
      if (req.method !== "GET" && req.method !== "HEAD") {
        res.setHeader("Allow", "GET, HEAD");
        sendRefusal(req, res, new Refusal("method_not_allowed", `${path} is only to be read; use GET`), 405);
      } else if (path === "/healthz") {
        answer(req, res, health.serving ? 200 : 503, "application/json", `${JSON.stringify({ serving: health.serving })}\n`);
      } else if (path === "/metrics") {
        answerMetrics(options, req, res);
      } else {
        answer(req, res, 200, "text/plain; charset=utf-8", frontPage);
      }
      return;
    }
    sendRefusal(
      req,
      res,
      new Refusal("path_not_found", `nothing is served at ${quote(path)}; GET / says what is`, { path: path.slice(0, 256) }),
      404,
    );
  };
}

function answer(req: HttpRequest, res: HttpResponse, httpStatus: number, contentType: string, body: string): void {
  res.writeHead(httpStatus, { "Content-Type": contentType, "Content-Length": Buffer.byteLength(body), "Cache-Control": "no-store" });
  res.end(req.method === "HEAD" ? undefined : body);
}

function answerMetrics({ authenticate, metrics, log }: HttpHandlerOptions, req: HttpRequest, res: HttpResponse): void {
  authenticate(req.headers)
    .then((principal) => {
      requireApi(principal, "/metrics");
      answer(req, res, 200, "text/plain; version=0.0.4; charset=utf-8", metrics.render());
    })
    .catch((error: unknown) => {
      sendRefusal(
        req,
        res,
        isRefusal(error) ? error : new Refusal("internal", toConnectError(error, "/metrics", undefined, log).rawMessage),
      );
    });
}

function describe(version: string): string {
  const services = SERVED_SERVICES.map((service) => `  ${service.typeName}`).join("\n");
  return `brain ${version}: a durable runtime for agent Tools.

This port speaks Connect, gRPC and gRPC-Web:
${services}

Look around:     grpcurl -plaintext HOST:PORT list
Call with JSON:  curl -H 'Content-Type: application/json' -d '{}' http://HOST:PORT/brain.v1.SessionService/ListSessions
Commands (SSE):  GET or POST /v1/hosts/{host_id}/commands
Health:          GET /healthz
Metrics:         GET /metrics

Where a token is asked for, send it as 'Authorization: Bearer TOKEN'.
`;
}
