/**
 * One call of a Tool that this process runs.
 *
 * 1. The function is called at most once, and never after its call was stopped or its time was over.
 * 2. `run` resolves exactly once, with one outcome that Brain accepts, and never rejects, whatever the function does.
 * 3. It resolves only when every emit of the call has been answered: the outcome cannot overtake an event. It is kept
 *    before that: a process that ends meanwhile has emitted what it has.
 * 4. The first cause of a stop stands. What a stopped function returns is still reported; what it throws is the stop.
 */
import { randomUUID } from "node:crypto";
import { CancelCause, type RunTool, type Outcome as WireOutcome } from "@aexhq/brain-proto";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Clock } from "./clock.js";
import { BrainError, invalidArgument, thrownMessage } from "./errors.js";
import { cutToBytes, DETAILS_MAX_BYTES, toJsonText, VALUE_MAX_BYTES } from "./json.js";
import { isOutcome, type Outcome, wireFailure, wireOk } from "./outcome.js";
import { type Parsed, parse, type Violation, violationsText } from "./schema.js";
import type { DeclaredTool, HostFunction, ToolContext } from "./tool.js";

const MESSAGE_MAX_BYTES = 8 * 1024;

/** Why a call is to stop. `call_ended`: it has ended in a way that this process was not told. */
export type StopCause = "deadline_passed" | "cancel_requested" | "session_ended" | "call_ended" | "closing";

const STOP_TEXTS: Readonly<Record<StopCause, string>> = {
  deadline_passed: "the deadline of the call passed before an outcome was recorded",
  cancel_requested: "the call was cancelled",
  session_ended: "the session was ended while the call was open",
  call_ended: "the call has ended already",
  closing: "the process that runs the call is closing its connection to Brain",
};

export function stopCause(cause: CancelCause): StopCause {
  switch (cause) {
    case CancelCause.DEADLINE:
      return "deadline_passed";
    case CancelCause.REQUESTED:
      return "cancel_requested";
    case CancelCause.SESSION_ENDED:
      return "session_ended";
    default:
      return "call_ended";
  }
}

/** Commits an event of the call; the SDK's connection repeats it until Brain has answered. */
export type EmitEvent = (event: { kind: string; dataJson: string; emitId: string }) => Promise<number>;

export class HostCall {
  readonly #command: RunTool;
  readonly #tool: DeclaredTool | undefined;
  readonly #emitEvent: EmitEvent;
  readonly #clock: Clock;
  readonly #controller = new AbortController();
  readonly #openEmits = new Set<Promise<unknown>>();
  readonly #dueMs: number;
  #disarm: () => void = () => undefined;
  #stopped: StopCause | undefined;
  #hasEndedInBrain = false;
  #settled = false;

  constructor(command: RunTool, tool: DeclaredTool | undefined, emitEvent: EmitEvent, clock: Clock) {
    this.#command = command;
    this.#tool = tool;
    this.#emitEvent = emitEvent;
    this.#clock = clock;
    this.#dueMs = clock.monotonic() + remaining(command);
  }

  /** Brain, or this process in leaving, wants the call to stop. Says nothing to Brain. */
  stop(cause: StopCause): void {
    if (cause !== "closing") this.#hasEndedInBrain = true;
    this.#stop(cause);
  }

  /**
   * The ending of a call that this clock found overdue before Brain said anything, or undefined. It is to be reported
   * before the outcome: a value that comes after the deadline is late, however little.
   */
  get overdue(): WireOutcome | undefined {
    const isOverdue = this.#stopped === "deadline_passed" && !this.#hasEndedInBrain;
    return isOverdue ? this.#stoppedOutcome("deadline_passed") : undefined;
  }

  #stop(cause: StopCause): void {
    if (this.#stopped !== undefined || this.#settled) return;
    this.#stopped = cause;
    // A function that is deaf to its signal may run for ever; its deadline must not keep the process alive as well.
    this.#disarm();
    const reason = new Error(STOP_TEXTS[cause]);
    // The names that libraries which take a signal look for; the code is ours.
    reason.name = cause === "deadline_passed" ? "TimeoutError" : "AbortError";
    this.#controller.abort(Object.assign(reason, { code: cause }));
  }

  /** `keep` gets the outcome as soon as it is known, before the emits that are still open are answered, and is waited for. */
  async run(keep?: (outcome: WireOutcome) => Promise<void>): Promise<WireOutcome> {
    const ending = await this.#ending();
    this.#settled = true;
    this.#disarm();
    const kept = keep?.(ending);
    while (this.#openEmits.size > 0) await Promise.allSettled(this.#openEmits);
    await kept;
    return ending;
  }

  async #ending(): Promise<WireOutcome> {
    if (this.#stopped !== undefined) return this.#stoppedOutcome(this.#stopped);
    const leftMs = this.#dueMs - this.#clock.monotonic();
    this.#disarm = this.#clock.after(leftMs, () => this.#stop("deadline_passed"));
    try {
      return await this.#outcome();
    } catch (thrown) {
      return this.#thrown(thrown);
    }
  }

  async #outcome(): Promise<WireOutcome> {
    const { name, environment, configurationJson } = this.#command;
    if (this.#tool === undefined) {
      const message = `This process holds no function for Tool "${name}" in Environment "${environment}"; serve it with brain.serve`;
      return wireFailure("error", { code: "tool_not_served", message });
    }
    const held = this.#tool.implementation;
    const options = await held.parseOptions(configurationJson === "" ? "{}" : configurationJson);
    if (!options.ok) return this.#violated("invalid_options", "the options of the placement are", options.violations);
    const input = await parsedInput(held, this.#command.inputJson);
    if (!input.ok) return this.#violated("invalid_input", "the input is", input.violations);
    // Asked of the clock, not of the timer, which a busy process runs late.
    if (this.#clock.monotonic() >= this.#dueMs) this.#stop("deadline_passed");
    if (this.#stopped !== undefined) return this.#stoppedOutcome(this.#stopped);
    const returned = await held.run(input.value, this.#context(options.value) as ToolContext<never>);
    return isOutcome(returned) ? await this.#returnedOutcome(returned, held) : await this.#value(returned, held);
  }

  #context(options: unknown): ToolContext {
    const { sessionId, callSequence, deadline } = this.#command;
    return Object.freeze({
      options,
      sessionId,
      sequence: callSequence,
      deadline: deadline === undefined ? new Date(Number.NaN) : timestampDate(deadline),
      signal: this.#controller.signal,
      emit: (kind: string, data?: unknown) => {
        const emitting = this.#emit(kind, data);
        this.#openEmits.add(emitting);
        const answered = (): void => void this.#openEmits.delete(emitting);
        // Also keeps a refused emit that nobody awaits from taking the process down.
        emitting.then(answered, answered);
        return emitting;
      },
    });
  }

  async #emit(kind: string, data: unknown): Promise<number> {
    const { name } = this.#command;
    if (this.#settled) {
      throw new BrainError("call_ended", `Tool "${name}": the function has returned; emit before it does`);
    }
    if (typeof kind !== "string" || kind === "") {
      throw invalidArgument(`Tool "${name}": the kind of an emitted event is empty; give it a name`);
    }
    const text = toJsonText(data, VALUE_MAX_BYTES);
    if (!text.ok) {
      throw invalidArgument(`Tool "${name}": the data of event "${kind}" cannot travel: ${at(text.path)}${text.problem}`);
    }
    return await this.#emitEvent({ kind, dataJson: text.text, emitId: randomUUID() });
  }

  async #returnedOutcome(returned: Outcome, held: HostFunction): Promise<WireOutcome> {
    if (returned.status === "ok") return await this.#value(returned.value, held);
    const { status, retryable } = returned;
    const message = cutToBytes(returned.message, MESSAGE_MAX_BYTES);
    // Only well-formed text can be written down and read back.
    const code = cutToBytes(returned.code, MESSAGE_MAX_BYTES);
    if (returned.details === undefined) return wireFailure(status, { code, message, retryable });
    const details = toJsonText(returned.details, DETAILS_MAX_BYTES);
    if (!details.ok) return this.#invalidOutput(`the details of the returned Outcome ${code}`, details);
    return wireFailure(status, { code, message, retryable, detailsJson: details.text });
  }

  /** What is posted is what was judged: the JSON of the value, and with an output schema, what the parse made of it. */
  async #value(value: unknown, held: HostFunction): Promise<WireOutcome> {
    const written = toJsonText(value);
    if (!written.ok) return this.#invalidOutput("the returned value", written);
    if (held.output === undefined) return wireOk(written.text);
    const output = await parse(held.output, JSON.parse(written.text));
    if (!output.ok) return this.#violated("invalid_output", "the returned value is", output.violations);
    const posted = toJsonText(output.value);
    return posted.ok ? wireOk(posted.text) : this.#invalidOutput("the parsed output", posted);
  }

  #thrown(thrown: unknown): WireOutcome {
    const { name } = this.#command;
    const stopped = this.#stopped;
    if (stopped !== undefined && stopped !== "closing") return this.#stoppedOutcome(stopped);
    const outcome = isOutcome(thrown) && thrown.status !== "ok" ? thrown : undefined;
    const message = isOutcome(thrown)
      ? `Tool "${name}" threw an Outcome instead of returning it: ${outcome?.code ?? "ok"}: ${outcome?.message ?? ""}`
      : thrownMessage(thrown);
    return wireFailure("error", { code: "tool_error", message: cutToBytes(message, MESSAGE_MAX_BYTES) });
  }

  #stoppedOutcome(cause: StopCause): WireOutcome {
    const status = cause === "deadline_passed" ? "timeout" : cause === "closing" ? "error" : "cancelled";
    return wireFailure(status, { code: cause === "closing" ? "tool_error" : cause, message: STOP_TEXTS[cause] });
  }

  #violated(code: string, what: string, violations: readonly Violation[]): WireOutcome {
    const message = `Tool "${this.#command.name}": ${what} not what the schema asks for: ${violationsText(violations)}`;
    const detailsJson = JSON.stringify({ violations });
    return wireFailure("error", { code, message: cutToBytes(message, MESSAGE_MAX_BYTES), detailsJson });
  }

  #invalidOutput(what: string, found: { path: string; problem: string }): WireOutcome {
    const { name } = this.#command;
    const message = `Tool "${name}": ${what} cannot be recorded: ${at(found.path)}${found.problem}`;
    const violations = [{ path: cutToBytes(found.path, 1024), rule: "json", message: found.problem }];
    return wireFailure("error", {
      code: "invalid_output",
      message: cutToBytes(message, MESSAGE_MAX_BYTES),
      detailsJson: JSON.stringify({ violations }),
    });
  }
}

function at(path: string): string {
  return path === "" ? "" : `at ${path}: `;
}

function parsedInput(held: HostFunction, inputJson: string): Parsed | Promise<Parsed> {
  return parse(held.input, JSON.parse(inputJson));
}

/** Milliseconds the call has left, by the server's own count; the deadline itself only where it gave none. */
function remaining(command: RunTool): number {
  if (command.remaining !== undefined) {
    return Number(command.remaining.seconds) * 1_000 + command.remaining.nanos / 1e6;
  }
  return command.deadline === undefined ? Number.POSITIVE_INFINITY : timestampDate(command.deadline).getTime() - Date.now();
}
