import { dynamicTool, type JSONValue, jsonSchema, type ToolSet } from "ai";
import { type Outcome, unwrap } from "../outcome.js";
import type { Session } from "../sessions.js";
import { type EnvironmentChoice, type ShownTool, shownTools } from "./shown-tool.js";

export type { EnvironmentChoice, EnvironmentPolicy, PolicyCall } from "./shown-tool.js";

export interface AiSdkToolsOptions {
  /** Who says where a Tool runs that has several placements. Without it such a Tool is refused. */
  environment?: EnvironmentChoice;
  /**
   * What a failed call is to the AI SDK. `"throw"`, the default: a `tool-error` whose error is an OutcomeError, and the
   * model reads its message, `status code: message`. `"return"`: a `tool-result` whose output is the Outcome, for every
   * call, and the model reads the value of an `ok` or, as an error, the whole Failure with its details.
   */
  failures?: "throw" | "return";
  /**
   * Names the call in the session; the AI SDK's `toolCallId` without it. Needed where a provider does not make ids that
   * are unique in the session, since the same id with the same content is the same call.
   */
  callId?: (call: { readonly toolCallId: string; readonly name: string }) => string;
}

/**
 * The Tools of a session for the AI SDK's `generateText` and `streamText`. The model is shown the canonical definitions;
 * Brain validates, records and runs the calls. A refused request (an ended session, say) is a `tool-error` as well, whose
 * error is a BrainError.
 *
 * @throws BrainError `invalid_argument` where a Tool has several placements and `environment` does not say which, or
 * names what the session does not have.
 * @example
 * const tools = await toAiSdkTools(session);
 * const { text } = await generateText({ model, tools, prompt: "Look up item 7.", stopWhen: stepCountIs(5) });
 */
export async function toAiSdkTools(session: Session, options: AiSdkToolsOptions = {}): Promise<ToolSet> {
  const tools = await shownTools(session, options.environment);
  return Object.fromEntries(tools.map((tool) => [tool.name, aiSdkTool(tool, options)]));
}

function aiSdkTool(tool: ShownTool, { failures = "throw", callId }: AiSdkToolsOptions): ToolSet[string] {
  const { name, description, inputSchema } = tool;
  const returnsFailures = failures === "return";
  return dynamicTool({
    description,
    // No validate here: an input that breaks the schema goes to Brain too, which records and answers it.
    inputSchema: jsonSchema<unknown>(inputSchema),
    execute: async (input, { toolCallId, abortSignal }) => {
      const ending = await tool.call(input, callId?.({ toolCallId, name }) ?? toolCallId, abortSignal);
      return returnsFailures ? ending : unwrap(ending);
    },
    ...(returnsFailures ? { toModelOutput: ({ output }: { output: unknown }) => modelOutput(output as Outcome) } : {}),
  });
}

type ModelOutput = { type: "text"; value: string } | { type: "json" | "error-json"; value: JSONValue };

function modelOutput(ending: Outcome): ModelOutput {
  if (ending.status !== "ok") return { type: "error-json", value: { ...ending } as JSONValue };
  return typeof ending.value === "string" ? { type: "text", value: ending.value } : { type: "json", value: ending.value as JSONValue };
}
