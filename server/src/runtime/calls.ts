import { type ToolCall, ToolCallSchema, ToolCallState } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { LIMITS } from "../config.js";
import { utf8Length } from "../core/outcome.js";
import { invalidArgument } from "../core/refusal.js";
import type { CallRow, Journal } from "../journal/port.js";
import { callNotFound } from "./live-call.js";
import { checkPageSize } from "./pages.js";
import { sessionNotFound } from "./sessions.js";

export type CallBy = { readonly callId: string } | { readonly callSequence: number };

/** Calls as the journal tells them: only what is durable is seen here. */
export class Calls {
  readonly #journal: Journal;

  constructor(journal: Journal) {
    this.#journal = journal;
  }

  async get(sessionId: string, by: CallBy): Promise<ToolCall> {
    const row = await this.#journal.findCall(sessionId, by);
    if (row !== undefined) return toolCallOf(row);
    if ((await this.#journal.findSession(sessionId)) === undefined) throw sessionNotFound(sessionId);
    throw callNotFound(sessionId, by);
  }

  async list(
    sessionId: string,
    query: { state: ToolCallState; pageSize: number; pageToken: string },
  ): Promise<{ toolCalls: ToolCall[]; nextPageToken: string }> {
    const pageSize = checkPageSize(query.pageSize);
    const afterCallSequence = cursorOf(query.pageToken);
    if ((await this.#journal.findSession(sessionId)) === undefined) throw sessionNotFound(sessionId);
    const open = query.state === ToolCallState.UNSPECIFIED ? {} : { open: query.state === ToolCallState.RUNNING };
    const rows = await this.#journal.listCalls({ sessionId, afterCallSequence, pageSize, ...open });
    // Outcomes may be a megabyte each: the page ends where the answer is full.
    const toolCalls: ToolCall[] = [];
    let bytes = 0;
    for (const row of rows) {
      const toolCall = toolCallOf(row);
      bytes += sizeOf(toolCall);
      if (toolCalls.length > 0 && bytes > LIMITS.pageBytes) break;
      toolCalls.push(toolCall);
    }
    const last = toolCalls.at(-1)?.callSequence;
    if (last === undefined) return { toolCalls, nextPageToken: "" };
    const [more] = await this.#journal.listCalls({ sessionId, afterCallSequence: last, pageSize: 1, ...open });
    return { toolCalls, nextPageToken: more === undefined ? "" : String(last) };
  }
}

function toolCallOf({ sessionId, callSequence, started, endSequence, ended, late }: CallRow): ToolCall {
  const { callId, name, environment, deadline, receiver } = started;
  const toolCall = create(ToolCallSchema, { sessionId, callSequence, callId, name, environment });
  if (deadline !== undefined) toolCall.deadline = deadline;
  if (receiver !== undefined) toolCall.instanceId = receiver.instanceId;
  if (endSequence !== undefined) toolCall.endSequence = endSequence;
  if (ended?.outcome !== undefined) toolCall.outcome = ended.outcome;
  if (late?.outcome !== undefined) toolCall.lateOutcome = late.outcome;
  return toolCall;
}

function sizeOf({ outcome, lateOutcome }: ToolCall): number {
  let bytes = 512;
  for (const status of [outcome?.status, lateOutcome?.status]) {
    if (status?.case === undefined) continue;
    bytes +=
      status.case === "ok"
        ? utf8Length(status.value.valueJson)
        : utf8Length(status.value.message) + utf8Length(status.value.detailsJson ?? "");
  }
  return bytes;
}

function cursorOf(pageToken: string): number {
  if (pageToken === "") return 0;
  if (!/^[1-9]\d{0,9}$/.test(pageToken)) throw invalidArgument("page_token", "is not one that a list returned");
  return Number(pageToken);
}
