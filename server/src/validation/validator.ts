import { acceptJson, exceedsUtf8 } from "../core/json.js";
import { compileSchema, type Judge, linearEngine, Meter, MeterRunOut } from "./compile.js";
import { costOf, countNodes } from "./cost.js";
import { linkSchema } from "./link.js";
import { Lru } from "./lru.js";
import type { Schema, SchemaProblem, Validator, Verdict } from "./port.js";
import { ThreadPool } from "./thread-pool.js";

/**
 * JSON Schema checking of strangers' schemas and values.
 *
 * 1. On the event loop runs only what is proved cheap (`cost.ts`): steps bounded by the shape, patterns linear and
 *    metered. Everything else runs in threads that are stopped at their limit (`thread-pool.ts`).
 * 2. The sum of what the event loop spends here is bounded too: beyond its allowance, what could take more than a
 *    moment goes to the threads.
 * 3. Memory is bounded by caches, never by the number of sessions. A schema forgotten is compiled again when it is
 *    needed, after a restart as well.
 * 4. Nothing is fetched, and neither schema nor value is ever looked up by an inherited name (`link.ts`).
 */
export interface ValidatorLimits {
  readonly validationMs: number;
  readonly compilationMs: number;
  /** Values up to this size may be judged on the event loop. */
  readonly inlineValueBytes: number;
  readonly schemaBytes: number;
  readonly validatorThreads: number;
  readonly validatorCacheEntries: number;
  /** Questions that may wait for a thread. */
  readonly validatorQueue: number;
}

/** Longer schemas are analysed in a thread. */
const INLINE_SCHEMA_CHARACTERS = 16 * 1024;
/** Steps of a judgement on the event loop; with every violation collected a step costs up to 0.2 µs. */
const INLINE_STEPS = 50_000;
/** Characters times program size of patterns; some 10 ns each, ten times that at worst. */
const INLINE_PATTERN_WORK = 200_000;
/** Judgements below this go on when the allowance is used up: asking a thread would cost the event loop more. */
const TRIFLE_STEPS = 1000;
const ALLOWANCE_MS = 50;
const ALLOWANCE_PER_MS = 0.25;
/** Compiled code is some fifty times the schema's text. */
const CACHE_CHARACTERS = 1024 * 1024;
const CHECKED_ENTRIES = 4096;

type Plan = { readonly judge: Judge; readonly weight: number } | "thread";

export function createValidator(limits: ValidatorLimits): Validator {
  return new PooledValidator(limits);
}

class PooledValidator implements Validator {
  readonly #limits: ValidatorLimits;
  readonly #pool: ThreadPool;
  readonly #plans: Lru<Plan>;
  readonly #checked = new Lru<SchemaProblem | "usable">(CHECKED_ENTRIES);
  readonly #checking = new Map<string, Promise<SchemaProblem | undefined>>();
  readonly #meter = new Meter();
  readonly #allowance = new Allowance(ALLOWANCE_MS, ALLOWANCE_PER_MS);

  constructor(limits: ValidatorLimits) {
    this.#limits = limits;
    this.#plans = new Lru(limits.validatorCacheEntries, CACHE_CHARACTERS);
    this.#pool = new ThreadPool({
      threads: limits.validatorThreads,
      waiting: limits.validatorQueue,
      compileMs: limits.compilationMs,
      judgeMs: limits.validationMs,
    });
  }

  async check(schema: Schema, source = schema.sha256): Promise<SchemaProblem | undefined> {
    const known = this.#checked.get(schema.sha256);
    if (known !== undefined) return known === "usable" ? undefined : known;
    const running = this.#checking.get(schema.sha256);
    if (running !== undefined) return running;
    const checking = this.#checkNew(schema, source).finally(() => this.#checking.delete(schema.sha256));
    this.#checking.set(schema.sha256, checking);
    return checking;
  }

  async validate(schema: Schema, text: string, source = schema.sha256): Promise<Verdict> {
    const verdict = this.#judgeInline(schema, text);
    if (verdict !== undefined) return verdict;
    const answer = await this.#pool.ask({ sha256: schema.sha256, schema: schema.text, text, source });
    if (answer.type === "judged") return answer.verdict;
    if (answer.type === "stopped") return { valid: false, tooCostly: true };
    return { valid: false, violations: [unusable(answer.problem)] };
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  async #checkNew(schema: Schema, source: string): Promise<SchemaProblem | undefined> {
    const accepted = acceptJson(schema.text, this.#limits.schemaBytes);
    if (!accepted.ok) return { path: "", message: accepted.problem };
    const plan = this.#plan(schema);
    if (plan !== undefined && plan !== "thread") return this.#remember(schema, "message" in plan ? plan : undefined);
    const answer = await this.#pool.ask({ sha256: schema.sha256, schema: schema.text, text: undefined, source });
    if (answer.type === "checked") return this.#remember(schema, answer.problem);
    // Not remembered: a busy machine may have been the reason.
    const message = `compiling the schema was stopped at its limit of ${this.#limits.compilationMs} ms; make it smaller`;
    return { path: "", message, tooCostly: true };
  }

  #remember(schema: Schema, problem: SchemaProblem | undefined): SchemaProblem | undefined {
    this.#checked.set(schema.sha256, problem ?? "usable");
    return problem;
  }

  /** How to judge by the schema; undefined when finding out would exceed the allowance. */
  #plan(schema: Schema): Plan | SchemaProblem | undefined {
    const known = this.#plans.get(schema.sha256);
    if (known !== undefined) return known;
    if (schema.text.length > INLINE_SCHEMA_CHARACTERS) return "thread";
    if (!this.#allowance.left()) return undefined;
    const plan = this.#allowance.spend(() => this.#makePlan(schema));
    if (plan === "thread" || "judge" in plan) this.#plans.set(schema.sha256, plan, schema.text.length);
    return plan;
  }

  #makePlan(schema: Schema): Plan | SchemaProblem {
    const linking = linkSchema(JSON.parse(schema.text));
    if (!linking.ok) return linking.problem;
    const { weight, cheap } = costOf(linking.linked);
    if (cheap === undefined) return "thread";
    const compilation = compileSchema(linking.linked, { engine: linearEngine(cheap, this.#meter), everything: true });
    return "problem" in compilation ? compilation.problem : { judge: compilation.judge, weight };
  }

  /** Undefined when this is for a thread. */
  #judgeInline(schema: Schema, text: string): Verdict | undefined {
    if (exceedsUtf8(text, this.#limits.inlineValueBytes)) return undefined;
    const plan = this.#plan(schema);
    if (plan === undefined || plan === "thread") return undefined;
    if ("message" in plan) return { valid: false, violations: [unusable(plan)] };
    const value: unknown = JSON.parse(text);
    const most = INLINE_STEPS / plan.weight;
    const nodes = countNodes(value, most);
    if (nodes > most) return undefined;
    if (nodes * plan.weight <= TRIFLE_STEPS && text.length <= TRIFLE_STEPS) return this.#judge(plan.judge, value);
    if (!this.#allowance.left()) return undefined;
    return this.#allowance.spend(() => this.#judge(plan.judge, value));
  }

  #judge(judge: Judge, value: unknown): Verdict | undefined {
    this.#meter.reset(INLINE_PATTERN_WORK);
    try {
      const violations = judge(value);
      return violations.length === 0 ? { valid: true } : { valid: false, violations };
    } catch (error) {
      if (error instanceof MeterRunOut) return undefined;
      throw error;
    }
  }
}

function unusable(problem: SchemaProblem | undefined) {
  return {
    path: "",
    rule: "schema",
    message: `the schema itself cannot be used, at ${JSON.stringify(problem?.path ?? "")}: ${problem?.message ?? "unknown"}`,
  };
}

/** Time that may be spent: it fills at a rate, up to a bound, and what is spent is taken after the fact. */
class Allowance {
  readonly #most: number;
  readonly #perMs: number;
  #ms: number;
  #at = performance.now();

  constructor(most: number, perMs: number) {
    this.#most = most;
    this.#perMs = perMs;
    this.#ms = most;
  }

  left(): boolean {
    const now = performance.now();
    this.#ms = Math.min(this.#most, this.#ms + (now - this.#at) * this.#perMs);
    this.#at = now;
    return this.#ms > 0;
  }

  spend<T>(use: () => T): T {
    const from = performance.now();
    try {
      return use();
    } finally {
      this.#ms -= performance.now() - from;
    }
  }
}
