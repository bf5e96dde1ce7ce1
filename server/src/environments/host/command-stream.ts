import { type AttachResponse, AttachResponseSchema, type Command, CommandSchema, type Outcome } from "@aexhq/brain-proto";
import { create, toBinary } from "@bufbuild/protobuf";
import { LIMITS } from "../../config.js";
import { assert } from "../../core/assert.js";
import { Refusal } from "../../core/refusal.js";

interface PushOptions {
  /** The message this answers. */
  readonly answers?: number;
  /** The message was not written, and will not be. */
  readonly unwritten?: (() => void) | undefined;
  /** Brings the message up to date when a route takes it; false drops it, since nobody needs it any more. */
  readonly renew?: (() => boolean) | undefined;
}

interface Queued extends PushOptions {
  readonly message: AttachResponse;
  readonly bytes: number;
}

/**
 * What Brain writes to one attached instance: the one object behind all three routes.
 *
 * 1. Messages leave in the order they were pushed, each once.
 * 2. A message counts as written from the moment a route takes it. What is still here when the stream closes was
 *    never written, and its `unwritten` is called.
 * 3. A reader that lags behind by more than the backlog is closed; nobody else waits for it.
 * 4. A closed stream never opens again.
 */
export class CommandStream implements AsyncIterable<AttachResponse> {
  readonly #onGone: (stream: CommandStream) => void;
  #queue: Queued[] = [];
  #backlogBytes = 0;
  #wake: (() => void) | undefined;
  #open = true;
  #finishing = false;
  /** Nothing more is pushed: the stream ends with what is in the queue. */
  #ending = false;
  #refusal: Refusal | undefined;

  /** `onGone` is called once, when the reader leaves or the stream is closed. */
  constructor(onGone: (stream: CommandStream) => void) {
    this.#onGone = onGone;
  }

  get open(): boolean {
    return this.#open;
  }

  /** False when the stream is closed or has just been closed for lagging behind; nothing was written then. */
  push(message: AttachResponse["message"], options: PushOptions = {}): boolean {
    if (!this.#open) return false;
    const response = create(AttachResponseSchema, { message });
    if (options.answers !== undefined) response.answersMessageId = options.answers;
    const bytes = sizeOf(response);
    assert(bytes <= LIMITS.messageBytes, "every command fits the message limit");
    if (this.#backlogBytes + bytes > LIMITS.streamBacklogBytes || this.#queue.length >= LIMITS.streamBacklogMessages) {
      this.close(new Refusal("stream_too_slow", "the commands of this stream were not read fast enough; attach again and read on"));
      return false;
    }
    this.#queue.push({ message: response, bytes, unwritten: options.unwritten, renew: options.renew });
    this.#backlogBytes += bytes;
    this.#wake?.();
    return true;
  }

  /** As `push`; also false when the stream is about to end. */
  command(kind: Command["kind"], unwritten?: () => void, renew?: () => boolean): boolean {
    if (this.#finishing) return false;
    const message = { case: "command" as const, value: create(CommandSchema, { kind }) };
    return this.push(message, { unwritten, renew });
  }

  /** Ends the stream; with a refusal the reader is told why. */
  close(refusal?: Refusal): void {
    if (!this.#open) return;
    this.#open = false;
    this.#refusal = refusal;
    const unwritten = this.#queue;
    this.#queue = [];
    this.#wake?.();
    this.#onGone(this);
    for (const message of unwritten) message.unwritten?.();
  }

  /** Takes back the commands that no route has taken yet; they count as never written. */
  withdraw(): void {
    const withdrawn = this.#queue.filter((message) => message.unwritten !== undefined);
    this.#queue = this.#queue.filter((message) => message.unwritten === undefined);
    for (const message of withdrawn) {
      this.#backlogBytes -= message.bytes;
      message.unwritten?.();
    }
  }

  /** Ends the stream once what was pushed has been taken; the answer to what ends it may still be pushed in this turn of the event loop. */
  finish(): void {
    if (this.#finishing) return;
    this.#finishing = true;
    setImmediate(() => {
      this.#ending = true;
      if (this.#queue.length === 0) this.close();
    });
  }

  /**
   * For one reader, who asks for a message when it has the one before. A plain iterator, since every command and answer
   * passes through it: a generator would add turns of the event loop's queue to each.
   */
  [Symbol.asyncIterator](): AsyncIterator<AttachResponse, void, undefined> {
    return {
      next: () => new Promise((resolve, reject) => this.#next(resolve, reject)),
      return: () => {
        this.close();
        return Promise.resolve(END);
      },
      throw: (error: unknown) => {
        this.close();
        return Promise.reject(error);
      },
    };
  }

  #next(resolve: (step: IteratorResult<AttachResponse, void>) => void, reject: (refusal: Refusal) => void): void {
    this.#wake = undefined;
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
      this.#backlogBytes -= next.bytes;
      if (next.renew?.() === false) continue;
      resolve({ done: false, value: next.message });
      return;
    }
    if (this.#ending) this.close();
    if (this.#open) this.#wake = () => this.#next(resolve, reject);
    else if (this.#refusal === undefined) resolve(END);
    else reject(this.#refusal);
  }
}

const END = { done: true, value: undefined } as const;

function sizeOf(response: AttachResponse): number {
  const { message } = response;
  // Only a RunTool can be large; the rest is bounded by its own fields and cheap to overestimate.
  if (message.case === "command" && message.value.kind.case === "runTool") {
    const { inputJson, configurationJson } = message.value.kind.value;
    const estimate = 3 * (inputJson.length + configurationJson.length) + 4096;
    return estimate <= LIMITS.messageBytes ? estimate : toBinary(AttachResponseSchema, response).byteLength;
  }
  if (message.case === "reportOutcome") {
    const estimate = 512 + 3 * outcomeLength(message.value.standingOutcome);
    return estimate <= LIMITS.messageBytes ? estimate : toBinary(AttachResponseSchema, response).byteLength;
  }
  if (message.case === "command" && message.value.kind.case === "attached") {
    return toBinary(AttachResponseSchema, response).byteLength;
  }
  return 512;
}

/** Characters of an outcome; in UTF-8 each takes at most three bytes. */
function outcomeLength(outcome: Outcome | undefined): number {
  const status = outcome?.status;
  if (status?.case === undefined) return 0;
  if (status.case === "ok") return status.value.valueJson.length;
  const { code, message, detailsJson = "" } = status.value;
  return code.length + message.length + detailsJson.length;
}
