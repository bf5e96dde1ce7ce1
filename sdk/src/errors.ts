import { type ErrorReason, ErrorReasonSchema } from "@aexhq/brain-proto";
import { Code, ConnectError } from "@connectrpc/connect";

const BRAND = Symbol.for("aexhq.brain.error");

/**
 * A request that was refused, or that could not be made. Branch on `reason`.
 *
 * Reasons are Brain's own (`docs/errors.md`), or one of the SDK's: `unavailable` (Brain could not be reached, and
 * whether it heard the request is not known), `closed` (this Brain object was closed), `aborted` (the caller's signal
 * was aborted before anything was sent), `outbox_in_use` (another living process has the outbox file), `outbox_unusable`
 * (it cannot be written, or is no outbox of this host). A call that fails is not an error but an Outcome.
 */
export class BrainError extends Error {
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** Recognised by name and not by class, so that two copies of this package in one process understand each other. */
  readonly [BRAND] = true;

  constructor(reason: string, message: string, metadata: Readonly<Record<string, string>> = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "BrainError";
    this.reason = reason;
    this.metadata = metadata;
  }
}

export function isBrainError(error: unknown): error is BrainError {
  return typeof error === "object" && error !== null && BRAND in error;
}

export function invalidArgument(message: string): BrainError {
  return new BrainError("invalid_argument", message);
}

/** Codes that say nothing about the request itself: the same request may well succeed later. */
const TRANSPORT_CODES: ReadonlySet<Code> = new Set([
  Code.Unavailable,
  Code.Aborted,
  Code.Unknown,
  Code.Internal,
  Code.Canceled,
  Code.DeadlineExceeded,
  Code.DataLoss,
]);

const CODE_REASONS: Partial<Record<Code, string>> = {
  [Code.InvalidArgument]: "invalid_argument",
  [Code.NotFound]: "not_found",
  [Code.AlreadyExists]: "already_exists",
  [Code.PermissionDenied]: "permission_denied",
  [Code.ResourceExhausted]: "request_too_large",
  [Code.FailedPrecondition]: "failed_precondition",
  [Code.OutOfRange]: "out_of_range",
  [Code.Unimplemented]: "unimplemented",
  [Code.Unauthenticated]: "unauthenticated",
};

/** Makes whatever a request threw into a BrainError: Brain's own reason where it gave one. */
export function brainErrorFrom(thrown: unknown, baseUrl: string): BrainError {
  if (isBrainError(thrown)) return thrown;
  const error = ConnectError.from(thrown);
  const detail: ErrorReason | undefined = error.findDetails(ErrorReasonSchema)[0];
  if (detail !== undefined && detail.reason !== "") {
    return new BrainError(detail.reason, error.rawMessage, { ...detail.metadata }, error);
  }
  const reason = CODE_REASONS[error.code];
  if (reason === undefined || TRANSPORT_CODES.has(error.code) || isReset(error)) {
    return new BrainError("unavailable", `Brain at ${baseUrl} did not answer: ${error.rawMessage}`, {}, error);
  }
  const hint = error.code === Code.Unimplemented ? "; check that the address is Brain's" : "";
  return new BrainError(reason, `Brain at ${baseUrl} refused the request: ${error.rawMessage}${hint}`, {}, error);
}

/** A reset stream can carry any code, and is never Brain's verdict. */
function isReset(error: ConnectError): boolean {
  return error.rawMessage.startsWith("http/2 stream closed");
}

/** Refusals of a host's emits and reports that stand however often they are repeated. */
const FOR_GOOD: ReadonlySet<string> = new Set([
  "aborted",
  "call_ended",
  "call_not_found",
  "closed",
  "invalid_argument",
  "permission_denied",
  "request_too_large",
]);

/** Whether repeating an emit or a report cannot change this answer. */
export function isForGood(error: BrainError): boolean {
  return FOR_GOOD.has(error.reason);
}

/** Whether the answer says nothing about the request: nobody was there, or not any more, or not yet. */
export function isTransient(error: BrainError): boolean {
  return error.reason === "unavailable" || error.reason === "server_draining";
}

/** Whether it is the token that was refused: asking again soon is no use. */
export function isTokenRefusal(error: BrainError): boolean {
  return error.reason === "unauthenticated" || error.reason === "permission_denied";
}

const NETWORK_CODES: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "ECONNABORTED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "ETIMEDOUT",
  "EPIPE",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "EHOSTDOWN",
]);

/** Whether the network failed (nobody was there), as opposed to somebody there who does not speak this protocol. */
export function isNetworkFailure(error: unknown): boolean {
  const seen = new Set<unknown>();
  for (let at: unknown = error; at instanceof Error && !seen.has(at); at = at.cause) {
    seen.add(at);
    if (NETWORK_CODES.has(String((at as { code?: unknown }).code))) return true;
  }
  return false;
}

/** A non-empty text for anything that was thrown, without its stack. */
export function thrownMessage(thrown: unknown): string {
  try {
    if (typeof thrown === "object" && thrown !== null) {
      const { message, name } = thrown as { message?: unknown; name?: unknown };
      if (typeof message === "string" && message !== "") return message;
      if (typeof name === "string" && name !== "") return `${name} without a message`;
      return "an object without a message was thrown";
    }
    const text = String(thrown);
    return text === "" ? "an empty text was thrown" : text;
  } catch {
    return "something was thrown that cannot be shown";
  }
}
