import { parentPort, workerData } from "node:worker_threads";
import { assert } from "../../core/assert.js";
import { describeError, errorCode } from "./journal-file-error.js";
import type { WriterOptions } from "./operation.js";
import { Writer } from "./writer.js";
import type { WriterAnswer, WriterRequest } from "./writer-link.js";

// The whole of the writer thread: it opens the writer and answers one request after another.
const port = parentPort;
assert(port !== null, "the writer thread runs as a thread");
const answer = (message: WriterAnswer): void => port.postMessage(message);

try {
  const writer = Writer.open(workerData as WriterOptions);
  port.on("message", (request: WriterRequest) => {
    switch (request.type) {
      case "commit":
        answer({ type: "committed", reply: writer.commit(request.operations, request.commitTimeMs) });
        return;
      case "checkpoint":
        answer({ type: "checkpointed", reply: writer.checkpoint() });
        return;
      case "close":
        writer.close();
        answer({ type: "closed" });
        return;
      default:
        request satisfies never;
    }
  });
  answer({ type: "opened", hadPurges: writer.hasPurges() });
} catch (error) {
  answer({ type: "not_opened", code: errorCode(error), message: describeError(error) });
}
