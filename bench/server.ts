/** Brain as it is composed for people, with the calls made inside its process. */
import { randomUUID } from "node:crypto";
import { CallToolRequestSchema } from "@aexhq/brain-proto";
import { defaultConfig, startServer } from "@aexhq/brain-server";
import { create } from "@bufbuild/protobuf";
import { fail, hear, tell } from "./channel.js";
import { ENVIRONMENT, INPUT_JSON, TOOL } from "./lookup.js";
import { measure } from "./measure.js";

const [dataDir = ""] = process.argv.slice(2);
const quiet = (): void => undefined;
const loud = (fields: object, message: string): void => console.error(message, fields);

const server = await startServer({
  config: { ...defaultConfig(), listen: "127.0.0.1:0", dataDir },
  apiToken: undefined,
  log: { debug: quiet, info: quiet, warn: loud, error: loud },
  onFatal: fail,
});
const { sessions } = server.brain;
const from = { principal: "api", traceparent: "" };

const callable = {
  async call(sessionId: string): Promise<void> {
    const request = create(CallToolRequestSchema, {
      sessionId,
      callId: randomUUID(),
      name: TOOL,
      environment: ENVIRONMENT,
      inputJson: INPUT_JSON,
    });
    const { outcome } = await sessions.callTool(request, from);
    if (outcome.status.case !== "ok") throw new Error(`a call ended ${outcome.status.case}: ${JSON.stringify(outcome.status.value)}`);
  },
  get flushCount(): number {
    return server.journal.flushCount;
  },
};

tell({ type: "listening", url: server.url });
hear(
  (span) => measure(callable, span),
  () => server.close(),
);
