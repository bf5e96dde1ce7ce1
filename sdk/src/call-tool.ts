/**
 * One call, from the caller's side.
 *
 * 1. The same call_id is asked for until there is an answer: Brain runs it at most once, however often it is asked.
 * 2. There is no deadline here. Waiting ends with Brain's answer; only while nobody answers is it bounded. Brain answers
 *    at the deadline at the latest: a connection that still says nothing well after it is dead, and is asked no more.
 * 3. Aborting asks Brain to cancel, and goes on waiting: what is returned is always the recorded ending.
 */
import type { CallToolResponse, ToolCallService } from "@aexhq/brain-proto";
import type { Client } from "@connectrpc/connect";
import { Backoff } from "./backoff.js";
import { wait } from "./clock.js";
import { BrainError, isTransient, thrownMessage } from "./errors.js";
import { cutToBytes } from "./json.js";
import type { Requests } from "./requests.js";

/** How long Brain may stay unreachable beyond the time the call itself has. */
const SLACK_MS = 60_000;
/** How long after the call's own time an answer may come on a connection that has said nothing so far. */
const OVERDUE_MS = 10_000;
const REASON_MAX_BYTES = 1024;

export type CallToolMessage = Parameters<Client<typeof ToolCallService>["callTool"]>[0] & {
  sessionId: string;
  callId: string;
};

export async function callTool(
  requests: Requests,
  message: CallToolMessage,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<CallToolResponse> {
  if (signal?.aborted) {
    throw new BrainError("aborted", `The call of Tool "${message.name}" was aborted before it was made; nothing ran`);
  }
  const answered = new AbortController();
  const cancel = (): void => {
    // It rejects with nothing: what cannot be cancelled is waited for all the same.
    void cancelUntilAnswered(requests, message, signal?.reason, answered.signal);
  };
  signal?.addEventListener("abort", cancel, { once: true });
  try {
    return await untilAnswered(requests, message, timeoutMs);
  } finally {
    answered.abort();
    signal?.removeEventListener("abort", cancel);
  }
}

async function untilAnswered(requests: Requests, message: CallToolMessage, timeoutMs: number): Promise<CallToolResponse> {
  const { clock } = requests;
  const giveUpMs = clock.monotonic() + timeoutMs + SLACK_MS;
  const backoff = new Backoff();
  for (;;) {
    const askedMs = clock.monotonic();
    const hangUp = new AbortController();
    const disarm = clock.after(timeoutMs + OVERDUE_MS, () => hangUp.abort());
    try {
      return await requests.once(({ signal }) =>
        requests.toolCalls.callTool(message, { signal: AbortSignal.any([signal, hangUp.signal]) }),
      );
    } catch (thrown) {
      const error = requests.failed(thrown);
      if (!isTransient(error) || clock.monotonic() >= giveUpMs) throw error;
      // Whoever listened for a while and then hung up was there: come back quickly.
      if (clock.monotonic() - askedMs > 1_000) backoff.reset();
      await wait(clock, backoff.next());
    } finally {
      disarm();
    }
  }
}

async function cancelUntilAnswered(
  requests: Requests,
  { sessionId, callId }: CallToolMessage,
  why: unknown,
  answered: AbortSignal,
): Promise<void> {
  const reason = cutToBytes(why === undefined ? "" : thrownMessage(why), REASON_MAX_BYTES);
  const backoff = new Backoff({ firstMs: 20 });
  while (!answered.aborted) {
    try {
      await requests.once((options) =>
        requests.toolCalls.cancelToolCall({ sessionId, by: { case: "callId", value: callId }, reason }, options),
      );
      return;
    } catch (thrown) {
      const error = requests.failed(thrown);
      // Not found: the call is on its way, and this request was faster.
      if (error.reason !== "call_not_found" && !isTransient(error)) return;
      await wait(requests.clock, backoff.next(), answered);
    }
  }
}
