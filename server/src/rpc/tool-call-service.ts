import { ToolCallService } from "@aexhq/brain-proto";
import type { ConnectRouter } from "@connectrpc/connect";
import { LIMITS } from "../config.js";
import { invalidArgument } from "../core/refusal.js";
import type { Brain } from "../runtime/brain.js";
import type { CallBy } from "../runtime/calls.js";
import { principalName } from "./principal-name.js";

export function registerToolCallService(router: ConnectRouter, brain: Brain): void {
  const { sessions, calls } = brain;
  router.service(ToolCallService, {
    async callTool(request, context) {
      const traceparent = (context.requestHeader.get("traceparent") ?? "").slice(0, LIMITS.traceparentLength);
      const { callSequence, endSequence, outcome } = await sessions.callTool(
        request,
        { principal: principalName(context), traceparent },
        context.signal,
      );
      return { callSequence, endSequence, outcome };
    },
    async getToolCall({ sessionId, by }) {
      return { toolCall: await calls.get(sessionId, named(by)) };
    },
    listToolCalls(request) {
      return calls.list(request.sessionId, request);
    },
    async cancelToolCall({ sessionId, by, reason }, context) {
      const callSequence = await sessions.cancelCall(sessionId, named(by), reason, principalName(context));
      return { toolCall: await calls.get(sessionId, { callSequence }) };
    },
  });
}

function named(by: { case: "callId"; value: string } | { case: "callSequence"; value: number } | { case: undefined }): CallBy {
  switch (by.case) {
    case "callId":
      if (by.value === "") throw invalidArgument("call_id", "is empty; name the call by its call_id or its call_sequence");
      return { callId: by.value };
    case "callSequence":
      return { callSequence: by.value };
    case undefined:
      throw invalidArgument("by", "is missing; name the call by its call_id or its call_sequence");
  }
}
