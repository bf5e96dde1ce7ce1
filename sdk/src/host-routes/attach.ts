/**
 * `Attach`: commands, and the answers to them, on one bidirectional stream over HTTP/2.
 *
 * 1. The attachment is the first message of a stream, and it is queued in the step that takes the list.
 * 2. Every message has its own number and is settled exactly once: by its answer, its refusal, or the stream's end.
 * 3. Each attach has its own connection, which goes with it: a half-dead connection is never attached over again.
 */
import {
  type AttachRequest,
  AttachRequestSchema,
  type AttachResponse,
  type Command,
  type DetachRequest,
  type EmitEventRequest,
  type EmitEventResponse,
  type HeartbeatRequest,
  type HeartbeatResponse,
  type HostAttachment,
  HostService,
  type ReportOutcomeRequest,
  type ReportOutcomeResponse,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { type Address, http2Transport } from "../connection.js";
import { BrainError, brainErrorFrom, isTransient } from "../errors.js";
import type { CommandStream, HostRoute } from "./route.js";
import { UnaryAnswers } from "./unary.js";

type Message = Exclude<AttachRequest["message"], { case: undefined }>;
type Answer = Exclude<AttachResponse["message"], { case: undefined }>;
type AnswerValues = { [A in Answer as A["case"]]: A["value"] };

export class AttachRoute implements HostRoute {
  readonly name = "attach";
  readonly #address: Address;
  #stream: AttachStream | undefined;
  #answers: UnaryAnswers | undefined;
  #patienceMs: number | undefined;

  constructor(address: Address) {
    this.#address = address;
  }

  open(attachment: HostAttachment): CommandStream {
    this.#stream?.drop();
    this.#stream = new AttachStream(this.#address, attachment);
    return this.#stream;
  }

  /** What is asked on the stream ends with it, and its silence is noticed by those who wait for heartbeats. */
  hangUpAfter(ms: number): void {
    this.#patienceMs = ms;
    this.#answers?.hangUpAfter(ms);
  }

  async heartbeat(request: HeartbeatRequest): Promise<HeartbeatResponse> {
    if (!this.#isUp) return await this.#unary().heartbeat(request);
    return await this.#ask({ case: "heartbeat", value: request }, "heartbeat");
  }

  async emitEvent(request: EmitEventRequest): Promise<EmitEventResponse> {
    if (!this.#isUp) return await this.#unary().emitEvent(request);
    return await this.#ask({ case: "emitEvent", value: request }, "emitEvent");
  }

  async reportOutcome(request: ReportOutcomeRequest): Promise<ReportOutcomeResponse> {
    if (!this.#isUp) return await this.#unary().reportOutcome(request);
    return await this.#ask({ case: "reportOutcome", value: request }, "reportOutcome");
  }

  /** Leaving neither waits for a stream nor takes its end for an answer: there is always a request of its own. */
  async detach(request: DetachRequest): Promise<void> {
    if (this.#isUp) {
      try {
        await this.#ask({ case: "detach", value: request }, "detach");
        return;
      } catch (thrown) {
        if (!isTransient(brainErrorFrom(thrown, this.#address.baseUrl))) throw thrown;
      }
    }
    await this.#unary().detach(request);
  }

  close(): void {
    this.#stream?.drop();
    this.#answers?.close();
  }

  get #isUp(): boolean {
    return this.#stream?.isUp === true;
  }

  /** For as long as no stream is up: a draining server takes none, and still takes what its calls come to. */
  #unary(): UnaryAnswers {
    if (this.#answers === undefined) {
      this.#answers = new UnaryAnswers(this.#address, "binary");
      if (this.#patienceMs !== undefined) this.#answers.hangUpAfter(this.#patienceMs);
    }
    return this.#answers;
  }

  async #ask<C extends Answer["case"]>(message: Message, expected: C): Promise<AnswerValues[C]> {
    if (this.#stream === undefined) throw new BrainError("unavailable", "No stream to Brain is up");
    const { case: answered, value }: { case: string; value: unknown } = await this.#stream.ask(message);
    if (answered !== expected) {
      throw new BrainError("unavailable", `Brain answered a ${expected} message with ${answered}`);
    }
    return value as AnswerValues[C];
  }
}

class AttachStream implements CommandStream {
  readonly #baseUrl: string;
  readonly #controller = new AbortController();
  readonly #outgoing = new MessageQueue();
  readonly #unanswered = new Map<number, { resolve: (answer: Answer) => void; reject: (error: BrainError) => void }>();
  readonly #messages: AsyncIterable<AttachResponse>;
  readonly #release: () => void;
  #lastMessageId = 0;
  #isAttached = false;
  #ended = false;

  constructor(address: Address, attachment: HostAttachment) {
    this.#baseUrl = address.baseUrl;
    const { transport, release } = http2Transport(address);
    this.#release = release;
    this.#send({ case: "attachment", value: attachment });
    this.#messages = createClient(HostService, transport).attach(this.#outgoing, { signal: this.#controller.signal });
  }

  /** Whether Brain has accepted the attach; nothing is asked on a stream of which that is not known. */
  get isUp(): boolean {
    return this.#isAttached && !this.#ended;
  }

  async read(take: (command: Command) => void): Promise<void> {
    try {
      for await (const response of this.#messages) {
        if (this.#ended) return;
        this.#receive(response, take);
      }
    } catch (thrown) {
      if (!this.#ended) throw brainErrorFrom(thrown, this.#baseUrl);
    } finally {
      this.drop();
    }
  }

  ask(message: Message): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#ended) return reject(new BrainError("unavailable", `The stream to Brain at ${this.#baseUrl} is down`));
      this.#unanswered.set(this.#send(message), { resolve, reject });
    });
  }

  drop(): void {
    if (this.#ended) return;
    this.#ended = true;
    const lost = new BrainError("unavailable", `The stream to Brain at ${this.#baseUrl} ended before the answer`);
    for (const { reject } of this.#unanswered.values()) reject(lost);
    this.#unanswered.clear();
    this.#outgoing.end();
    this.#controller.abort();
    this.#release();
  }

  #send(message: Message): number {
    const messageId = ++this.#lastMessageId;
    this.#outgoing.push(create(AttachRequestSchema, { messageId, message }));
    return messageId;
  }

  #receive({ answersMessageId, message }: AttachResponse, take: (command: Command) => void): void {
    if (message.case === "command") {
      this.#isAttached = true;
      take(message.value);
      return;
    }
    if (answersMessageId === undefined || message.case === undefined) return;
    const asked = this.#unanswered.get(answersMessageId);
    this.#unanswered.delete(answersMessageId);
    if (message.case !== "refusal") {
      asked?.resolve(message);
      return;
    }
    const refused = new BrainError(message.value.reason, message.value.message);
    // The attachment is the one message nobody waits for: its refusal is the stream's.
    if (asked === undefined) throw refused;
    asked.reject(refused);
  }
}

/** What is to be written, in order; ends once. Read by the transport, which waits for the connection. */
class MessageQueue implements AsyncIterable<AttachRequest>, AsyncIterator<AttachRequest, undefined> {
  readonly #messages: AttachRequest[] = [];
  #reader: ((step: IteratorResult<AttachRequest, undefined>) => void) | undefined;
  #ended = false;

  push(message: AttachRequest): void {
    if (this.#ended) return;
    if (this.#reader === undefined) {
      this.#messages.push(message);
      return;
    }
    const reader = this.#reader;
    this.#reader = undefined;
    reader({ done: false, value: message });
  }

  end(): void {
    this.#ended = true;
    this.#messages.length = 0;
    this.#reader?.({ done: true, value: undefined });
    this.#reader = undefined;
  }

  next(): Promise<IteratorResult<AttachRequest, undefined>> {
    const message = this.#messages.shift();
    if (message !== undefined) return Promise.resolve({ done: false, value: message });
    if (this.#ended) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve) => {
      this.#reader = resolve;
    });
  }

  return(): Promise<IteratorResult<AttachRequest, undefined>> {
    this.end();
    return Promise.resolve({ done: true, value: undefined });
  }

  /** The transport tells its source that way that nobody reads any more. */
  throw(error: unknown): Promise<IteratorResult<AttachRequest, undefined>> {
    this.end();
    return Promise.reject(error);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
