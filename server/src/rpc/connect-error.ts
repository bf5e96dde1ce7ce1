import { ErrorReasonSchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";
import { REFUSAL_REASONS, type RefusalReason } from "../core/codes.js";
import type { Refusal } from "../core/refusal.js";
import type { Log } from "../runtime/log.js";
import { tapMessages } from "./tap-messages.js";

/**
 * The one place where a reason becomes a Connect code.
 *
 * 1. A refusal crosses the wire as its code, its message and one detail `ErrorReason`.
 * 2. An error nobody expected crosses it as `Internal` with neither detail nor cause, and is logged once.
 * 3. Codes that clients repeat by themselves (`Unavailable`) stand only for what repeating can change.
 */
const CODES = {
  attach_superseded: Code.Aborted,
  call_ended: Code.FailedPrecondition,
  call_id_conflict: Code.AlreadyExists,
  call_not_found: Code.NotFound,
  catalogue_too_large: Code.InvalidArgument,
  definition_conflict: Code.InvalidArgument,
  environment_conflict: Code.InvalidArgument,
  environment_not_found: Code.InvalidArgument,
  environment_unsupported: Code.FailedPrecondition,
  host_in_use: Code.FailedPrecondition,
  host_not_found: Code.NotFound,
  implementation_mismatch: Code.InvalidArgument,
  instance_detached: Code.FailedPrecondition,
  instance_not_attached: Code.FailedPrecondition,
  internal: Code.Internal,
  invalid_argument: Code.InvalidArgument,
  invalid_schema: Code.InvalidArgument,
  journal_full: Code.ResourceExhausted,
  journal_unavailable: Code.Unavailable,
  method_not_allowed: Code.Unimplemented,
  misdirected_request: Code.FailedPrecondition,
  origin_not_allowed: Code.PermissionDenied,
  path_not_found: Code.Unimplemented,
  permission_denied: Code.PermissionDenied,
  placement_duplicate: Code.InvalidArgument,
  request_id_conflict: Code.AlreadyExists,
  request_too_large: Code.ResourceExhausted,
  schema_too_costly: Code.InvalidArgument,
  server_draining: Code.Unavailable,
  session_ended: Code.FailedPrecondition,
  session_not_found: Code.NotFound,
  stream_too_slow: Code.Aborted,
  unauthenticated: Code.Unauthenticated,
  unsupported_media_type: Code.InvalidArgument,
} as const satisfies Record<RefusalReason, Code>;

const REASONS: ReadonlySet<string> = new Set(REFUSAL_REASONS);

/** By its reason, not its class: there may be two copies of the class in one process. */
export function isRefusal(error: unknown): error is Refusal {
  return error instanceof Error && error.name === "Refusal" && "reason" in error && REASONS.has(String(error.reason));
}

export function refusalToConnectError(refusal: Refusal): ConnectError {
  const detail = create(ErrorReasonSchema, { reason: refusal.reason, metadata: { ...refusal.metadata } });
  return new ConnectError(refusal.message, CODES[refusal.reason], undefined, [{ desc: ErrorReasonSchema, value: detail }], refusal);
}

/**
 * What a caller is told of `error`. `where` names the RPC in the log and in the message.
 * Errors that say only that the caller left, or that were made for the wire already, pass as they are.
 */
export function toConnectError(error: unknown, where: string, signal: AbortSignal | undefined, log: Log): ConnectError {
  if (isRefusal(error)) return refusalToConnectError(error);
  if (error instanceof ConnectError) return error;
  if (signal?.aborted === true && (error === signal.reason || (error instanceof Error && error.name === "AbortError"))) {
    return givenUp(where, error);
  }
  log.error({ err: error, rpc: where }, "an RPC failed in the server");
  return new ConnectError(`${where} failed in the server; the server's log has the cause`, Code.Internal);
}

function givenUp(where: string, cause: unknown): ConnectError {
  return new ConnectError(`${where} was given up by its caller`, Code.Canceled, undefined, undefined, cause);
}

/**
 * Turns what services throw, before the first message or in the middle of a stream, into Connect errors. What goes
 * wrong while a caller's own messages are read is the caller's: it has left, or its connection broke.
 */
export function refusals(log: Log): Interceptor {
  return (next) => async (req) => {
    const where = `${req.service.typeName}/${req.method.name}`;
    const failed = (error: unknown): ConnectError => toConnectError(error, where, req.signal, log);
    const lost = (error: unknown): ConnectError => (error instanceof ConnectError ? error : givenUp(where, error));
    try {
      const response = await next(req.stream ? { ...req, message: tapMessages(req.message, { failed: lost }) } : req);
      return response.stream ? { ...response, message: tapMessages(response.message, { failed }) } : response;
    } catch (error) {
      throw failed(error);
    }
  };
}
