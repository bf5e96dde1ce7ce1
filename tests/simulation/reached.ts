/** How often each ending, code, answer and window was met: a run that did not come there proves nothing about it. */
export class Reached {
  readonly #times = new Map<string, number>();

  reach(what: Window): void {
    this.#times.set(what, (this.#times.get(what) ?? 0) + 1);
  }

  times(what: Window): number {
    return this.#times.get(what) ?? 0;
  }

  get missing(): string[] {
    return WINDOWS.filter((window) => !this.#times.has(window));
  }

  /** What was met, the rarest first. */
  get table(): string[] {
    const known = [...this.#times].sort(([a, first], [b, second]) => first - second || (a < b ? -1 : 1));
    return known.map(([what, times]) => `${String(times).padStart(9)}  ${what}`);
  }
}

export type Window = (typeof WINDOWS)[number];

/** Everything that a run of the full length must have met. */
export const WINDOWS = [
  // How calls end.
  "ending ok",
  "ending error",
  "ending timeout",
  "ending cancelled",
  "ending unknown",
  "code call_ended",
  "code cancel_requested",
  "code command_not_delivered",
  "code deadline_passed",
  "code host_instance_lost",
  "code host_overloaded",
  "code host_unavailable",
  "code invalid_input",
  "code invalid_output",
  "code placement_not_found",
  "code schema_too_costly",
  "code session_ended",
  "code tool_error",
  "code tool_not_served",
  // What reporters are answered.
  "disposition RECORDED",
  "disposition DUPLICATE",
  "disposition LATE",
  "a late outcome after which another one comes",
  "duplicate report after a lost answer",
  "duplicate report of a successor",
  // What is refused.
  "refusal attach_superseded",
  "refusal call_ended",
  "refusal call_id_conflict",
  "refusal call_not_found",
  "refusal host_not_found",
  "refusal instance_detached",
  "refusal instance_not_attached",
  "refusal invalid_argument",
  "refusal journal_full",
  "refusal journal_unavailable",
  "refusal permission_denied",
  "refusal server_draining",
  "refusal session_ended",
  "refusal stream_too_slow",
  // The server.
  "crash with an open call",
  "crash with a start that is not durable",
  "crash with an ending that is not durable",
  "crash between a commit and its answer",
  "crash while a call waits for a slot",
  "restart with an open call",
  "stall of the server over a liveness limit",
  "step of the wall clock with an open call",
  "deadline that passed while the server was down",
  "reopened call that ends with its true outcome",
  "repeat of an ended call after a restart",
  // The journal.
  "append refused between start and send",
  "append of an ending refused",
  "several decisions undone at once",
  "ending held until the journal took it",
  "session's end refused",
  // Streams.
  "stream cut at both ends",
  "stream half open at the host",
  "stream half open at the server",
  "stream silent at both ends",
  "stream frozen and thawed",
  "attach that arrives after a newer one",
  "message on a stream that its host has dropped",
  "command lost with its stream",
  "command never written when its stream closed",
  "attach that ends undelivered calls",
  "attach after a restart that ends undelivered calls",
  "attach that keeps its calls",
  "attach that keeps no list",
  "attach that names ended calls",
  "heartbeat that names ended calls",
  "heartbeat with a list while a command is on its way",
  "instance silent and heard again",
  "requests on a stream, overtaken by a newer stream",
  // Instances.
  "instance died with a call",
  "instance gone by its grace",
  "instance detached with its list",
  "instance detached with calls on its list",
  "instance detached without a list",
  "call listed by a successor",
  "ending reported by a successor",
  "late outcome of a successor",
  "call whose first holder is gone and that goes on with a successor",
  "foreign call in a list",
  "command that had expired when it was to run",
  // Callers.
  "caller that left and asked again",
  "two callers of one call",
  "answer lost on the way to the caller",
  "cancel while the call is looked up or judged",
  "cancel while the call waits",
  "cancel while the call runs",
  "cancel of an ended call",
  "deadline while the call waits",
  "session ended while a call waits",
  "session ended while a call runs",
  "call granted a slot after waiting",
  "slots of an instance all in use",
  "emit repeated after a lost answer",
  "emit answered by the life after the one that recorded it",
] as const;
