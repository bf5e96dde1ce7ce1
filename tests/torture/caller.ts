/**
 * Those who call Tools. A caller asks with one call_id until it is answered, whatever happens to its connections and to
 * Brain, and writes down everything it was told.
 */
import * as http from "node:http";
import { setTimeout as after } from "node:timers/promises";
import { ErrorReasonSchema, ToolCallService } from "@aexhq/brain-proto";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { type Client, Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import type { Brain } from "../../sdk/src/client.js";
import type { Outcome } from "../../sdk/src/outcome.js";
import { type Answer, type AskedCall, outcomeText } from "./evidence.js";

/** Refusals that ask to be asked again. */
const PASSING: ReadonlySet<string> = new Set(["server_draining", "journal_unavailable", "journal_full"]);
const PASSING_CODES: ReadonlySet<Code> = new Set([
  Code.Unavailable,
  Code.Aborted,
  Code.Unknown,
  Code.Internal,
  Code.Canceled,
  Code.DeadlineExceeded,
]);

export interface CallerLog {
  answered(answer: Answer): void;
  complained(callId: string, what: string): void;
}

export class Caller {
  readonly #toolCalls: Client<typeof ToolCallService>;
  readonly #agent = new http.Agent({ keepAlive: true });
  readonly #brain: Brain;
  readonly #log: CallerLog;

  /** `brain` is the SDK's way to the same server. */
  constructor(baseUrl: string, apiToken: string, brain: Brain, log: CallerLog) {
    this.#toolCalls = createClient(ToolCallService, transport(baseUrl, apiToken, this.#agent));
    this.#brain = brain;
    this.#log = log;
  }

  /** Resolves when everything that was asked was answered, or `given` up. */
  async call(call: AskedCall, given: AbortSignal): Promise<void> {
    const cancelling = call.cancelAfterMs === undefined ? undefined : this.#cancel(call, call.cancelAfterMs, given);
    await (call.caller === "sdk" ? this.#callWithSdk(call, given) : this.#callRaw(call, "call", given));
    await cancelling;
    if (call.confirmed) await this.#callRaw(call, "confirmation", given);
  }

  close(): void {
    this.#agent.destroy();
  }

  async #callRaw(call: AskedCall, by: Answer["by"], given: AbortSignal): Promise<void> {
    const { callId, sessionId, environment, timeoutMs } = call;
    const request = { sessionId, callId, name: "work", environment, inputJson: inputOf(call), timeout: durationFromMs(timeoutMs) };
    const answer = await this.#untilAnswered(call, given, (signal) => this.#toolCalls.callTool(request, { signal }));
    if (answer === undefined) return;
    const { callSequence, endSequence, outcome } = answer;
    this.#log.answered({ callId, at: Date.now(), by, outcome: outcomeText(outcome), callSequence, endSequence });
  }

  async #callWithSdk(call: AskedCall, given: AbortSignal): Promise<void> {
    const { callId, sessionId, environment, timeoutMs } = call;
    const gaveUp = new Promise<undefined>((resolve) => given.addEventListener("abort", () => resolve(undefined), { once: true }));
    try {
      const session = await this.#untilAnswered(call, given, () => this.#brain.sessions.get(sessionId));
      if (session === undefined) return;
      const calling = session.callTool({ callId, name: "work", environment, input: JSON.parse(inputOf(call)) as unknown, timeoutMs });
      // Whoever gives up no longer listens.
      calling.catch(() => undefined);
      const outcome = await Promise.race([calling, gaveUp]);
      if (outcome === undefined) return this.#log.complained(callId, "its caller (SDK) was never answered");
      this.#log.answered({ callId, at: Date.now(), by: "call", outcome: sdkText(outcome) });
    } catch (error) {
      this.#log.complained(callId, `its caller (SDK) was refused: ${String(error)}`);
    }
  }

  async #cancel(call: AskedCall, afterMs: number, given: AbortSignal): Promise<void> {
    await after(afterMs);
    const { callId, sessionId } = call;
    call.cancelAskedAt = Date.now();
    const answer = await this.#untilAnswered(call, given, (signal) =>
      this.#toolCalls.cancelToolCall({ sessionId, by: { case: "callId", value: callId }, reason: "torture" }, { signal }),
    );
    if (answer?.toolCall?.endSequence === undefined) return;
    const { callSequence, endSequence, outcome } = answer.toolCall;
    this.#log.answered({ callId, at: Date.now(), by: "cancel", outcome: outcomeText(outcome), callSequence, endSequence });
  }

  async #untilAnswered<T>(call: AskedCall, given: AbortSignal, ask: (signal: AbortSignal) => Promise<T>): Promise<T | undefined> {
    while (!given.aborted) {
      const hangUp = new AbortController();
      const patience = setTimeout(() => hangUp.abort(), call.patienceMs);
      const abort = (): void => hangUp.abort();
      given.addEventListener("abort", abort);
      try {
        return await ask(hangUp.signal);
      } catch (error) {
        const refusal = lasting(error);
        // A cancel may be faster than the call it is for.
        if (refusal !== undefined && !(refusal === "call_not_found" && call.cancelAskedAt !== undefined)) {
          this.#log.complained(call.callId, `its caller was refused: ${refusal}: ${String(error)}`);
          return undefined;
        }
      } finally {
        clearTimeout(patience);
        given.removeEventListener("abort", abort);
      }
      await after(30);
    }
    this.#log.complained(call.callId, "its caller was never answered");
    return undefined;
  }
}

/** Makes a request until it is answered; for what must be there before a round begins. */
export async function insist<T>(ask: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await ask();
    } catch (error) {
      if (lasting(error) !== undefined || attempt === 200) throw error;
      await after(25);
    }
  }
}

export function transport(baseUrl: string, apiToken: string, agent: http.Agent): ReturnType<typeof createConnectTransport> {
  return createConnectTransport({
    baseUrl,
    httpVersion: "1.1",
    nodeOptions: { agent },
    interceptors: [
      (next) => (request) => {
        request.header.set("Authorization", `Bearer ${apiToken}`);
        return next(request);
      },
    ],
  });
}

export function inputOf({ callId, work }: Pick<AskedCall, "callId" | "work">): string {
  return JSON.stringify({ call: callId, ...work });
}

/** The reason of a refusal that asking again will not change. */
function lasting(error: unknown): string | undefined {
  const brainReason = (error as { reason?: unknown }).reason;
  if (typeof brainReason === "string") return brainReason === "unavailable" || PASSING.has(brainReason) ? undefined : brainReason;
  const connectError = ConnectError.from(error);
  const reason = connectError.findDetails(ErrorReasonSchema)[0]?.reason;
  if (reason !== undefined && reason !== "") return PASSING.has(reason) ? undefined : reason;
  return PASSING_CODES.has(connectError.code) ? undefined : Code[connectError.code];
}

function sdkText(outcome: Outcome): string {
  if (outcome.status === "ok") return `ok ${JSON.stringify(outcome.value)}`;
  return `${outcome.status} ${outcome.code} ${outcome.message}`;
}
