import { parentPort } from "node:worker_threads";
import { compileSchema, type Judge, nativeEngine } from "./compile.js";
import { costOf, countNodes } from "./cost.js";
import { threadCpuMs } from "./cpu-time.js";
import { INTERRUPTED, interruptibly } from "./interrupt.js";
import { type Linked, linkSchema } from "./link.js";
import { Lru } from "./lru.js";
import type { SchemaProblem, Verdict, Violation } from "./port.js";
import { type Answer, type Question, THREAD_SCHEMA_CHARACTERS, THREAD_SCHEMAS, type ThreadMessage } from "./question.js";

/**
 * The inside of a validation thread. What it is given may run for ever, and is interrupted at its limit; it may
 * exhaust the thread's memory, and then the thread dies. It holds nothing but compiled schemas.
 */

/** Steps up to which every violation of a value is collected, not only the first. */
const MAX_STEPS_FOR_EVERYTHING = 500_000;
const SHORT_MS = 5;

interface Compiled {
  readonly linked: Linked;
  readonly weight: number;
  /** Stops at the first violation. */
  readonly first: Judge;
  everything: Judge | undefined;
}

const compiled = new Lru<Compiled>(THREAD_SCHEMAS, THREAD_SCHEMA_CHARACTERS);

function prepare(text: string): Compiled | SchemaProblem {
  const linking = linkSchema(JSON.parse(text));
  if (!linking.ok) return linking.problem;
  const { linked } = linking;
  const first = compileSchema(linked, { engine: nativeEngine, everything: false });
  if ("problem" in first) return first.problem;
  return { linked, weight: costOf(linked).weight, first: first.judge, everything: undefined };
}

/** Every violation where that is bounded; `first` when it is not. */
function elaborate(schema: Compiled, value: unknown, first: readonly Violation[]): readonly Violation[] {
  const most = MAX_STEPS_FOR_EVERYTHING / schema.weight;
  if (countNodes(value, most) > most) return first;
  if (schema.everything === undefined) {
    const compilation = compileSchema(schema.linked, { engine: nativeEngine, everything: true });
    schema.everything = "judge" in compilation ? compilation.judge : schema.first;
  }
  return schema.everything(value);
}

class Turn {
  readonly #question: Question;
  readonly #began = performance.now();
  readonly #beganCpu = threadCpuMs();
  /** Schemas this thread no longer has. */
  readonly forgotten: string[] = [];

  constructor(question: Question) {
    this.#question = question;
  }

  answer(): Answer {
    const schema = this.#schema();
    if ("type" in schema) return schema;
    const { text } = this.#question;
    if (text === undefined) return { type: "checked", problem: undefined };
    return this.#judge(schema, text);
  }

  #schema(): Compiled | Answer {
    const { sha256, schema: text, compileMs } = this.#question;
    const known = compiled.get(sha256);
    if (known !== undefined) return known;
    if (text === undefined) throw new Error("a validation thread was asked about a schema it does not have");
    const prepared = this.#within(compileMs, () => prepare(text));
    if ("linked" in prepared) {
      this.#warm(prepared);
      this.forgotten.push(...compiled.set(sha256, prepared, text.length));
      return prepared;
    }
    this.forgotten.push(sha256);
    return "type" in prepared ? prepared : { type: "checked", problem: prepared };
  }

  /** The engine compiles a function when it is first called, and large ones take longer than a judgement may. */
  #warm(schema: Compiled): void {
    try {
      interruptibly(Math.min(this.#question.judgeMs, this.#left()), () => schema.first(null));
    } catch {
      // It was not asked what it thinks of null; what is wrong with it will show again when it judges.
    }
  }

  #judge(schema: Compiled, text: string): Answer {
    const until = performance.now() + this.#question.judgeMs;
    try {
      const judged = this.#within(this.#question.judgeMs, () => {
        const value: unknown = JSON.parse(text);
        return { value, violations: schema.first(value) };
      });
      if ("type" in judged) return judged;
      if (judged.violations.length === 0) return { type: "judged", verdict: { valid: true } };
      const { value, violations } = judged;
      const every = interruptibly(Math.min(until - performance.now(), this.#left()), () => elaborate(schema, value, violations));
      return { type: "judged", verdict: invalid(every === INTERRUPTED ? violations : every) };
    } catch (error) {
      // A schema and a value that nest into each other beyond the stack are as good as beyond the time.
      if (error instanceof RangeError) return { type: "stopped" };
      throw error;
    }
  }

  busyMs(): number {
    const wallMs = performance.now() - this.#began;
    // Asking costs more than most turns take, and a short one has not waited long.
    return wallMs < SHORT_MS ? wallMs : Math.min(threadCpuMs() - this.#beganCpu, wallMs);
  }

  #left(): number {
    return this.#question.turnMs - (performance.now() - this.#began);
  }

  #within<T extends object>(limitMs: number, work: () => T): T | Answer {
    const left = this.#left();
    const beganCpu = this.busyMs();
    const outcome = interruptibly(Math.min(limitMs, left), work);
    if (outcome !== INTERRUPTED) return outcome;
    if (this.busyMs() - beganCpu < Math.min(limitMs, left) / 2) return { type: "starved" };
    return { type: limitMs <= left ? "stopped" : "turn over" };
  }
}

function invalid(violations: readonly Violation[]): Verdict {
  return { valid: false, violations };
}

function send(message: ThreadMessage): void {
  parentPort?.postMessage(message);
}

/** The first schema of a dialect costs some 20 ms, which must not count against a stranger's first question. */
for (const $schema of ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema"]) {
  const warm = prepare(JSON.stringify({ $schema, type: "object", properties: { a: { type: "string", pattern: "a" } } }));
  if ("linked" in warm) elaborate(warm, { a: 1 }, []);
}

parentPort?.on("message", (question: Question) => {
  const turn = new Turn(question);
  const answer = turn.answer();
  send({ type: "answered", answer, busyMs: turn.busyMs(), forgotten: turn.forgotten });
});
send({ type: "ready" });
