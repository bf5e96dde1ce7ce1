import { convertArrayToReadableStream, MockLanguageModelV3, mockValues } from "ai/test";

/** What a step of the model is: the Tools it asks for, or what it says at last. */
export type Step = readonly { toolCallId: string; toolName: string; input: unknown }[] | string;

type Generated = Awaited<ReturnType<MockLanguageModelV3["doGenerate"]>>;
type Streamed = Awaited<ReturnType<MockLanguageModelV3["doStream"]>>["stream"];
type StreamPart = Streamed extends ReadableStream<infer Part> ? Part : never;

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

/** One step in the AI SDK's own words; a text as input is sent as it is. */
export function generated(step: Step): Generated {
  const isText = typeof step === "string";
  const content: Generated["content"] = isText
    ? [{ type: "text", text: step }]
    : step.map(({ toolCallId, toolName, input }) => ({
        type: "tool-call",
        toolCallId,
        toolName,
        input: typeof input === "string" ? input : JSON.stringify(input),
      }));
  return { content, finishReason: { unified: isText ? "stop" : "tool-calls", raw: undefined }, usage, warnings: [] };
}

/** The AI SDK's test model, playing these steps, whether they are generated or streamed. */
export function scriptedModel(...steps: Step[]): MockLanguageModelV3 {
  const next = mockValues(...steps.map(generated));
  return new MockLanguageModelV3({
    doGenerate: () => Promise.resolve(next()),
    doStream: () => Promise.resolve({ stream: convertArrayToReadableStream(streamed(next())) }),
  });
}

function streamed({ content, finishReason }: Generated): StreamPart[] {
  const parts = content.flatMap((part): StreamPart[] => {
    if (part.type === "tool-call") return [part];
    if (part.type !== "text") return [];
    return [
      { type: "text-start", id: "1" },
      { type: "text-delta", id: "1", delta: part.text },
      { type: "text-end", id: "1" },
    ];
  });
  return [{ type: "stream-start", warnings: [] }, ...parts, { type: "finish", finishReason, usage }];
}

/** The outputs of Tool calls as the model was shown them in its latest step. */
export function toolOutputs(model: MockLanguageModelV3): unknown[] {
  const { prompt } = [...model.doGenerateCalls, ...model.doStreamCalls].at(-1) ?? { prompt: [] };
  return prompt.flatMap((message) =>
    message.role === "tool" ? message.content.flatMap((part) => (part.type === "tool-result" ? [part.output] : [])) : [],
  );
}
