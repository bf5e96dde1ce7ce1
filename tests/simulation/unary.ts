import type { AttachRequest, AttachResponse } from "@aexhq/brain-proto";
import type { HandlerContext } from "@connectrpc/connect";
import type { BrainLife } from "./server.js";

type Answer = AttachResponse["message"];

/** Asks by the unary RPC of the same meaning; `accepted` is called in the step in which the server takes note of it. */
export async function askUnary(
  life: BrainLife,
  context: HandlerContext,
  message: AttachRequest["message"],
  accepted: (life: BrainLife, isSure: boolean) => void,
): Promise<Answer> {
  const { protocol } = life;
  switch (message.case) {
    case "heartbeat": {
      const answer = await protocol.heartbeat(message.value, context);
      accepted(life, true);
      return { case: "heartbeat", value: answer } as Answer;
    }
    case "emitEvent":
      return { case: "emitEvent", value: await protocol.emitEvent(message.value, context) } as Answer;
    case "reportOutcome":
      return { case: "reportOutcome", value: await protocol.reportOutcome(message.value, context) } as Answer;
    case "detach":
      // It ends calls in that very step.
      accepted(life, true);
      return { case: "detach", value: await protocol.detach(message.value, context) } as Answer;
    default:
      throw new Error(`${message.case} is no request`);
  }
}
