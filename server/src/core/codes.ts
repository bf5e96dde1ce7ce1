/**
 * The two closed vocabularies of failure. `docs/errors.md` explains every word of both, and a test keeps
 * page and lists equal.
 *
 * A refused request leaves no trace in a session's journal unless the call machine says otherwise; a failed
 * call is an Outcome in the journal and an OK on the wire.
 */

/** Why a request was refused. Each is mapped to one Connect code in `rpc/connect-error.ts`. */
export const REFUSAL_REASONS = [
  "attach_superseded",
  "call_ended",
  "call_id_conflict",
  "call_not_found",
  "catalogue_too_large",
  "definition_conflict",
  "environment_conflict",
  "environment_not_found",
  "environment_unsupported",
  "host_in_use",
  "host_not_found",
  "implementation_mismatch",
  "instance_detached",
  "instance_not_attached",
  "internal",
  "invalid_argument",
  "invalid_schema",
  "journal_full",
  "journal_unavailable",
  "method_not_allowed",
  "misdirected_request",
  "origin_not_allowed",
  "path_not_found",
  "permission_denied",
  "placement_duplicate",
  "request_id_conflict",
  "request_too_large",
  "schema_too_costly",
  "server_draining",
  "session_ended",
  "session_not_found",
  "stream_too_slow",
  "unauthenticated",
  "unsupported_media_type",
] as const;
export type RefusalReason = (typeof REFUSAL_REASONS)[number];

/** The codes Brain and the SDK's host write into a Failure. A Tool's own failures carry whatever code its author chose. */
export const FAILURE_CODES = [
  "call_ended",
  "cancel_requested",
  "command_not_delivered",
  "deadline_passed",
  "host_instance_lost",
  "host_overloaded",
  "host_unavailable",
  "invalid_input",
  "invalid_options",
  "invalid_output",
  "placement_not_found",
  "schema_too_costly",
  "server_restarted",
  "session_ended",
  "tool_error",
  "tool_not_served",
] as const;
export type FailureCode = (typeof FAILURE_CODES)[number];
