import { CancelCause, type Outcome, OutcomeSchema, type RunTool } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import type { Ground } from "./ground.js";

/** What a function will do with a call: how long it takes, what it emits, and what comes of it. */
export interface Plan {
  readonly steps: readonly { readonly afterMs: number; readonly emitId: string | undefined }[];
  readonly outcome: Outcome;
  /** It goes on when it is told to stop. */
  readonly isDeaf: boolean;
  /** Breaks the rules of failures first, and is told so. */
  readonly clumsy: boolean;
}

export function drawPlan(ground: Ground, command: RunTool, instanceId: string): Plan {
  const { random, trace } = ground;
  const name = `${trace.name(command.sessionId, command.callSequence)}`;
  const emits = random.chance(0.4) ? random.between(1, 3) : 0;
  const totalMs = random.span(random.pick([5, 50, 400, 3000]));
  const steps = Array.from({ length: emits + 1 }, (_, index) => ({
    afterMs: totalMs / (emits + 1),
    emitId: index < emits ? `${instanceId} ${name} ${index}` : undefined,
  }));
  const outcome = random.weighted<Outcome>([
    [80, okOutcome(JSON.stringify({ value: `${name} by ${instanceId}` }))],
    [5, okOutcome(JSON.stringify({ wrong: name }))],
    [4, okOutcome(`{"wrong":`)],
    [8, failedOutcome("error", "own_failure", `${name} by ${instanceId}`)],
    [5, failedOutcome("error", "tool_error", `${name} by ${instanceId}`)],
  ]);
  return { steps, outcome, isDeaf: random.chance(0.5), clumsy: random.chance(0.02) };
}

export function okOutcome(valueJson: string): Outcome {
  return create(OutcomeSchema, { status: { case: "ok", value: { valueJson } } });
}

export function failedOutcome(status: "error" | "timeout" | "cancelled", code: string, message: string): Outcome {
  return create(OutcomeSchema, { status: { case: status, value: { code, message } } });
}

/** What is said of a function that was stopped before it came to an end of its own. */
export function stoppedOutcome(cause: CancelCause): Outcome {
  switch (cause) {
    case CancelCause.DEADLINE:
      return failedOutcome("timeout", "deadline_passed", "stopped at the deadline");
    case CancelCause.REQUESTED:
      return failedOutcome("cancelled", "cancel_requested", "stopped");
    case CancelCause.SESSION_ENDED:
      return failedOutcome("cancelled", "session_ended", "stopped");
    default:
      return failedOutcome("cancelled", "call_ended", "stopped");
  }
}
