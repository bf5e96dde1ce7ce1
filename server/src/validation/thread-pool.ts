import { Worker } from "node:worker_threads";
import { FairQueue } from "./fair-queue.js";
import { Lru } from "./lru.js";
import type { Answer, Question, ThreadMessage } from "./question.js";

/**
 * Threads that answer questions which may never end.
 *
 * 1. A question is interrupted at its limit. A thread that does not heed that, or dies of its memory cap, is replaced.
 * 2. Running long takes a place, and there is one place less than there are threads: one thread always comes free
 *    within a turn. A question without a place is interrupted at the end of its turn and asked again, among the slow
 *    ones, with a place.
 * 3. A source whose question outlived a turn is asked among the slow ones until one of them was quick again: a
 *    stranger with many costly schemas is met once, not once a schema.
 * 4. Each queue takes turns between sources and is bounded in questions and in characters.
 * 5. Threads keep the process alive only while a question waits or runs. They see no environment.
 */
export interface PoolLimits {
  readonly threads: number;
  /** Questions that wait, in each queue. */
  readonly waiting: number;
  readonly compileMs: number;
  readonly judgeMs: number;
  /** Heap of one thread; beyond it the thread dies and its question is stopped. */
  readonly memoryMb?: number;
}

export type Settled = Exclude<Answer, { type: "turn over" | "starved" }>;

export interface Asked {
  readonly sha256: string;
  readonly schema: string;
  /** The value to judge; absent to check the schema. */
  readonly text: string | undefined;
  /** Questions of one source wait for each other rather than for those of another. */
  readonly source: string;
}

const TURN_MS = 25;
const SLOW_FOR_MS = 10_000;
const SLOW_SOURCES = 1024;
const WAITING_CHARACTERS = 64 * 1024 * 1024;
/** How much later than its limit a question may be answered before its thread is given up. */
const PATIENCE_MS = 500;
const MOST_STARVED = 10;
const MEMORY_MB = 192;
const YOUNG_MEMORY_MB = 32;

/** A thread runs built code: under a TypeScript loader it is found in the build beside the sources. */
const ENTRY = new URL(import.meta.url.endsWith(".ts") ? "../../dist/validation/thread.js" : "./thread.js", import.meta.url);

interface Waiting extends Asked {
  /** Times it was stopped for want of a processor, and what it had of one nevertheless. */
  starved: number;
  busyMs: number;
  readonly settle: (answer: Settled) => void;
  readonly fail: (reason: Error) => void;
}

interface Slot {
  readonly thread: Worker;
  /** Schemas the thread has compiled. */
  readonly known: Set<string>;
  ready: boolean;
  running: Running | undefined;
}

interface Running {
  readonly waiting: Waiting;
  readonly startedAt: number;
  /** It may outlive its turn. */
  readonly place: boolean;
  readonly timer: NodeJS.Timeout;
}

export class ThreadPool {
  readonly #limits: PoolLimits;
  readonly #quick: FairQueue<Waiting>;
  readonly #slow: FairQueue<Waiting>;
  readonly #slots = new Set<Slot>();
  readonly #slowUntil = new Lru<number>(SLOW_SOURCES);
  #closed = false;

  constructor(limits: PoolLimits) {
    // With one thread there would be no place.
    this.#limits = { ...limits, threads: Math.max(limits.threads, 2) };
    this.#quick = new FairQueue(limits.waiting, WAITING_CHARACTERS);
    this.#slow = new FairQueue(limits.waiting, WAITING_CHARACTERS);
  }

  /** Settles as `stopped` also when too much is waiting. Rejects only when the pool is closed or broken. */
  ask(asked: Asked): Promise<Settled> {
    if (this.#closed) return Promise.reject(new Error("the validator is closed"));
    return new Promise((settle, fail) => {
      const until = this.#slowUntil.get(asked.source);
      this.#enqueue(until !== undefined && until > performance.now() ? this.#slow : this.#quick, {
        ...asked,
        starved: 0,
        busyMs: 0,
        settle,
        fail,
      });
      this.#staff();
      this.#assign();
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#failAll(new Error("the validator is closed"));
    const slots = [...this.#slots];
    this.#slots.clear();
    await Promise.all(slots.map(({ thread }) => thread.terminate()));
  }

  #enqueue(queue: FairQueue<Waiting>, waiting: Waiting): void {
    const characters = waiting.schema.length + (waiting.text?.length ?? 0);
    for (const dropped of queue.put(waiting.source, waiting, characters)) dropped.settle({ type: "stopped" });
  }

  /** Starts the threads that are missing. */
  #staff(): void {
    while (!this.#closed && this.#slots.size < this.#limits.threads) this.#start();
  }

  #start(): void {
    const resourceLimits = {
      maxOldGenerationSizeMb: this.#limits.memoryMb ?? MEMORY_MB,
      maxYoungGenerationSizeMb: YOUNG_MEMORY_MB,
    };
    const thread = new Worker(ENTRY, { resourceLimits, env: {}, execArgv: [], name: "validation" });
    const slot: Slot = { thread, known: new Set(), ready: false, running: undefined };
    this.#slots.add(slot);
    thread.on("message", (message: ThreadMessage) => this.#hear(slot, message));
    thread.on("error", (error: NodeJS.ErrnoException) => this.#broke(slot, error));
    thread.on("exit", () => this.#broke(slot, new Error("it ended by itself")));
  }

  #hear(slot: Slot, message: ThreadMessage): void {
    if (!this.#slots.has(slot)) return;
    if (message.type === "ready") slot.ready = true;
    else this.#answered(slot, message);
    this.#assign();
  }

  #answered(slot: Slot, { answer, busyMs, forgotten }: ThreadMessage & { type: "answered" }): void {
    for (const sha256 of forgotten) slot.known.delete(sha256);
    const running = this.#rest(slot);
    if (running === undefined) return;
    const { waiting, place } = running;
    const stopped = answer.type === "turn over" || answer.type === "stopped";
    if (stopped || busyMs >= 2 * TURN_MS) this.#wasSlow(waiting.source);
    else if (busyMs < TURN_MS && answer.type !== "starved") this.#slowUntil.delete(waiting.source);
    switch (answer.type) {
      case "turn over":
        this.#enqueue(this.#slow, waiting);
        break;
      case "starved":
        waiting.starved++;
        waiting.busyMs += busyMs;
        if (waiting.starved > MOST_STARVED || waiting.busyMs > this.#longest(waiting)) waiting.settle({ type: "stopped" });
        else this.#enqueue(place ? this.#slow : this.#quick, waiting);
        break;
      default:
        waiting.settle(answer);
    }
  }

  #longest({ text }: Asked): number {
    return text === undefined ? this.#limits.compileMs : this.#limits.judgeMs;
  }

  #wasSlow(source: string): void {
    this.#slowUntil.set(source, performance.now() + SLOW_FOR_MS);
    // What it has waiting among the quick ones would cost each of those a turn more.
    for (const waiting of this.#quick.takeAll(source)) this.#enqueue(this.#slow, waiting);
  }

  /** The thread has ended, or cannot start. */
  #broke(slot: Slot, error: NodeJS.ErrnoException): void {
    if (!this.#slots.delete(slot)) return;
    if (!slot.ready) {
      // Starting others would fail the same way, for ever.
      this.#failAll(new Error(`validation threads cannot start from ${ENTRY.href}: ${error.message}`, { cause: error }));
      return;
    }
    const waiting = this.#rest(slot)?.waiting;
    if (waiting !== undefined) {
      this.#wasSlow(waiting.source);
      if (error.code === "ERR_WORKER_OUT_OF_MEMORY") waiting.settle({ type: "stopped" });
      else waiting.fail(new Error(`a validation thread broke: ${error.message}`, { cause: error }));
    }
    this.#staff();
    this.#assign();
  }

  /** The thread neither answers nor dies. */
  #giveUp(slot: Slot, running: Running): void {
    if (slot.running !== running) return;
    this.#slots.delete(slot);
    this.#rest(slot);
    this.#wasSlow(running.waiting.source);
    // Nothing follows from how it ends: it is out of the pool already.
    void slot.thread.terminate();
    running.waiting.settle({ type: "stopped" });
    this.#staff();
    this.#assign();
  }

  #assign(): void {
    for (;;) {
      const ready = [...this.#slots].filter((slot) => slot.ready);
      const free = ready.filter((slot) => slot.running === undefined);
      if (free.length === 0) break;
      const placeFree = ready.filter((slot) => slot.running?.place === true).length < ready.length - 1;
      const slow = placeFree ? this.#slow.take() : undefined;
      const waiting = slow ?? this.#quick.take();
      if (waiting === undefined) break;
      const slot = free.find(({ known }) => known.has(waiting.sha256)) ?? free[0];
      // Places go to slow questions first; a quick one may have one while none of those waits.
      if (slot !== undefined) this.#run(slot, waiting, slow !== undefined || (placeFree && this.#slow.size === 0));
    }
    this.#holdProcess();
  }

  #run(slot: Slot, waiting: Waiting, place: boolean): void {
    const { sha256, schema, text } = waiting;
    const { compileMs, judgeMs } = this.#limits;
    const known = slot.known.has(sha256);
    const turnMs = place ? compileMs + judgeMs : TURN_MS;
    slot.known.add(sha256);
    slot.thread.postMessage({ sha256, schema: known ? undefined : schema, text, compileMs, judgeMs, turnMs } satisfies Question);
    const timer = setTimeout(
      // If this process itself was stalled, the answer may lie in the port already: let it be heard first.
      () => setImmediate(() => this.#giveUp(slot, running)),
      turnMs + PATIENCE_MS,
    );
    const running: Running = { waiting, startedAt: performance.now(), place, timer };
    slot.running = running;
  }

  #rest(slot: Slot): Running | undefined {
    const { running } = slot;
    clearTimeout(running?.timer);
    slot.running = undefined;
    return running;
  }

  #failAll(reason: Error): void {
    const all = [...this.#quick.drain(), ...this.#slow.drain()];
    for (const slot of this.#slots) {
      const running = this.#rest(slot);
      if (running !== undefined) all.push(running.waiting);
    }
    for (const waiting of all) waiting.fail(reason);
    this.#holdProcess();
  }

  #holdProcess(): void {
    const slots = [...this.#slots];
    const needed = this.#quick.size + this.#slow.size > 0 || slots.some(({ running }) => running !== undefined);
    for (const { thread } of slots) {
      if (needed) thread.ref();
      else thread.unref();
    }
  }
}
