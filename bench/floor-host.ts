/** The other process of the floor: answers every command with the same outcome, on the stream it came by. */
import { type AttachRequest, AttachRequestSchema, HostService } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { tell } from "./channel.js";
import { OUTPUT } from "./lookup.js";
import { Outgoing } from "./outgoing.js";

const [baseUrl = "", sessions = ""] = process.argv.slice(2);
const valueJson = JSON.stringify(OUTPUT);
const answers = new Outgoing<AttachRequest>();
let messageId = 0;

process.once("disconnect", () => process.exit(0));
const client = createClient(HostService, createConnectTransport({ baseUrl, httpVersion: "2" }));
answers.push(create(AttachRequestSchema, { messageId: ++messageId, message: { case: "attachment", value: {} } }));
for await (const { message } of client.attach(answers)) {
  if (message.case !== "command") continue;
  const { kind } = message.value;
  if (kind.case === "attached")
    tell({ type: "attached", sessionIds: Array.from({ length: Number(sessions) }, (_, index) => `floor-${index}`) });
  if (kind.case !== "runTool") continue;
  const { sessionId, callSequence } = kind.value;
  const outcome = { status: { case: "ok" as const, value: { valueJson } } };
  answers.push(
    create(AttachRequestSchema, {
      messageId: ++messageId,
      message: { case: "reportOutcome", value: { sessionId, callSequence, outcome } },
    }),
  );
}
