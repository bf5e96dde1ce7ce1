import { codeToHttpStatus, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import type { Refusal } from "../core/refusal.js";
import { refusalToConnectError } from "../rpc/connect-error.js";
import type { HttpRequest, HttpResponse } from "./exchange.js";

/**
 * Answers a plain HTTP request with a refusal: the JSON of a Connect error, so that one reader understands the
 * errors of every route. Does nothing when the response has begun.
 */
export function sendRefusal(req: HttpRequest, res: HttpResponse, refusal: Refusal, httpStatus?: number): void {
  if (res.headersSent || res.destroyed) return;
  const error = refusalToConnectError(refusal);
  const body = Buffer.from(errorToJsonBytes(error, undefined));
  res.setHeader("Content-Type", "application/json");
  res.setHeader("Content-Length", body.length);
  res.setHeader("Cache-Control", "no-store");
  if (refusal.reason === "unauthenticated") res.setHeader("WWW-Authenticate", "Bearer");
  // The rest of a body that nobody reads must not be waited for.
  if (req.httpVersionMajor === 1 && !req.complete) res.setHeader("Connection", "close");
  res.writeHead(httpStatus ?? codeToHttpStatus(error.code));
  res.end(body);
}
