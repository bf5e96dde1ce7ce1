import { type AttachRequest, AttachRequestSchema, type AttachResponse, HostService } from "@aexhq/brain-proto";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { createClient, createRouterTransport } from "@connectrpc/connect";
import { describe, expect, it } from "vitest";
import { ok } from "../../../server/src/core/outcome.js";
import { authorize } from "../../../server/src/rpc/authorize.js";
import { registerHostService } from "../../../server/src/rpc/host-service.js";
import { BrainInProcess, outcomeOf } from "../../support/brain-in-process.js";
import type { RawHost } from "../../support/raw-host.js";

const ignore = (): void => undefined;
const LOG = { debug: ignore, info: ignore, warn: ignore, error: ignore };

/** An instance on one Attach stream of the real service, without a socket. */
class AttachStream {
  readonly answers: AttachResponse[] = [];
  ended = false;
  readonly #brain: BrainInProcess;
  readonly #unsent: AttachRequest[] = [];
  #wake: () => void = ignore;
  #messages = 0;

  constructor(brain: BrainInProcess, host: RawHost, attachment: { instanceId: string; generation: number }) {
    this.#brain = brain;
    const interceptors = [authorize(() => Promise.resolve({ kind: "host", hostId: host.hostId }))];
    const transport = createRouterTransport((router) => registerHostService(router, brain.brain, LOG), { router: { interceptors } });
    this.#push({ case: "attachment", value: { hostId: host.hostId, heldCalls: {}, ...attachment } });
    void this.#read(createClient(HostService, transport).attach(this.#requests()));
  }

  /** Sends and lets happen what can happen. */
  async send(message: MessageInitShape<typeof AttachRequestSchema>["message"]): Promise<number> {
    const messageId = this.#push(message);
    await this.#brain.virtual.settle();
    return messageId;
  }

  answerTo(messageId: number): string | undefined {
    const answer = this.answers.find(({ answersMessageId }) => answersMessageId === messageId)?.message;
    return answer?.case === "refusal" ? `refusal ${answer.value.reason}` : answer?.case;
  }

  #push(message: MessageInitShape<typeof AttachRequestSchema>["message"]): number {
    const request = create(AttachRequestSchema, { messageId: ++this.#messages, ...(message === undefined ? {} : { message }) });
    this.#unsent.push(request);
    this.#wake();
    return request.messageId;
  }

  async *#requests(): AsyncGenerator<AttachRequest> {
    while (!this.ended) {
      const next = this.#unsent.shift();
      if (next !== undefined) yield next;
      else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }

  async #read(answers: AsyncIterable<AttachResponse>): Promise<void> {
    try {
      for await (const answer of answers) this.answers.push(answer);
    } finally {
      this.ended = true;
      this.#wake();
    }
  }
}

describe("an Attach stream", () => {
  it("answers every message once, by its number, and gives commands between the answers", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const stream = new AttachStream(brain, host, { instanceId: "one", generation: 1 });
    await brain.virtual.settle();
    expect(stream.answers.map(({ answersMessageId, message }) => [answersMessageId, message.case])).toEqual([
      [1, "command"],
      [undefined, "command"],
    ]);
    const name = { sessionId: session, callSequence: 2 };
    const heldCalls = { calls: [name] };
    const heartbeat = await stream.send({ case: "heartbeat", value: { hostId: host.hostId, instanceId: "one", heldCalls } });
    const emit = await stream.send({ case: "emitEvent", value: { ...name, kind: "tick", dataJson: "1", emitId: "e" } });
    const refused = await stream.send({
      case: "emitEvent",
      value: { ...name, callSequence: 99, kind: "tick", dataJson: "1", emitId: "e" },
    });
    const report = await stream.send({ case: "reportOutcome", value: { ...name, outcome: ok("1") } });
    expect([heartbeat, emit, refused, report].map((id) => stream.answerTo(id))).toEqual([
      "heartbeat",
      "emitEvent",
      "refusal call_not_found",
      "reportOutcome",
    ]);
    expect(outcomeOf(call)).toBe("ok 1");
    expect(stream.ended).toBe(false);
  });

  it("answers a detach, and then ends", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const stream = new AttachStream(brain, host, { instanceId: "one", generation: 1 });
    await brain.virtual.settle();
    const detach = await stream.send({ case: "detach", value: { hostId: host.hostId, instanceId: "one", generation: 1, heldCalls: {} } });
    expect(stream.answerTo(detach)).toBe("detach");
    expect(stream.ended).toBe(true);
  });

  it("is a sign of life by whatever is sent on it", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const session = await brain.createSession(host);
    const call = await brain.call(session);
    const stream = new AttachStream(brain, host, { instanceId: "one", generation: 1 });
    for (let minute = 0; minute < 4; minute++) {
      await brain.virtual.advance(14_000);
      await stream.send({
        case: "emitEvent",
        value: { sessionId: session, callSequence: 2, kind: "tick", dataJson: "1", emitId: `e${minute}` },
      });
    }
    expect(call.answered).toBeUndefined();
    await stream.send({ case: "reportOutcome", value: { sessionId: session, callSequence: 2, outcome: ok("1") } });
    expect(outcomeOf(call)).toBe("ok 1");
  });

  it("refuses a second attachment, and goes on", async () => {
    await using brain = await BrainInProcess.start();
    const host = await brain.registerHost();
    const stream = new AttachStream(brain, host, { instanceId: "one", generation: 1 });
    await brain.virtual.settle();
    const again = await stream.send({ case: "attachment", value: { hostId: host.hostId, instanceId: "one", generation: 2 } });
    expect(stream.answerTo(again)).toBe("refusal invalid_argument");
    expect(stream.ended).toBe(false);
  });
});
