// A session's Tools in the AI SDK's own loop. Run it against a server:
// BRAIN_URL=http://127.0.0.1:8080 npx tsx examples/ai-sdk.ts
import { Brain, hostEnv, tool } from "@aexhq/brain";
import { toAiSdkTools } from "@aexhq/brain/ai-sdk";
import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV3, mockValues } from "ai/test";
import { z } from "zod";

const lookup = tool({
  name: "lookup",
  description: "Look up one item.",
  input: z.object({ id: z.string() }),
  run: ({ id }) => ({ value: `item:${id}` }),
});

await using brain = new Brain({
  baseUrl: process.env["BRAIN_URL"] ?? "http://127.0.0.1:8080",
  ...(process.env["BRAIN_API_TOKEN"] ? { token: process.env["BRAIN_API_TOKEN"] } : {}),
});
const session = await brain.sessions.create({ tools: [lookup({ env: hostEnv({ name: "app" }) })] });

const { text, steps } = await generateText({
  model: scripted(), // with a key: openai("gpt-5"), anthropic("claude-sonnet-4-5") or any other of the AI SDK's
  tools: await toAiSdkTools(session),
  stopWhen: stepCountIs(5),
  prompt: "What is item 7?",
});
for (const { output } of steps.flatMap((step) => step.toolResults)) console.log("the Tool answered", output);
console.log("the model said", text);
const { outcome } = await session.getToolCall({ callId: "call-1" });
console.log("the journal has", outcome?.status);

type Generated = Awaited<ReturnType<MockLanguageModelV3["doGenerate"]>>;

/** Stands in for a model, so that this runs without a key: asks for the Tool once, then answers. */
function scripted(): MockLanguageModelV3 {
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  };
  const next = mockValues<Generated>(
    {
      content: [{ type: "tool-call", toolCallId: "call-1", toolName: "lookup", input: '{"id":"7"}' }],
      finishReason: { unified: "tool-calls", raw: undefined },
      usage,
      warnings: [],
    },
    { content: [{ type: "text", text: "It is item:7." }], finishReason: { unified: "stop", raw: undefined }, usage, warnings: [] },
  );
  return new MockLanguageModelV3({ doGenerate: () => Promise.resolve(next()) });
}
