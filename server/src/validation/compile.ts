import type { ErrorObject } from "ajv";
import type { LinearPattern } from "./cost.js";
import type { Linked } from "./link.js";
import { nativePattern } from "./pattern.js";
import type { SchemaProblem, Violation } from "./port.js";
import { violationsOf } from "./violations.js";

/** Says what a value breaks; an empty list says it is valid. */
export type Judge = (value: unknown) => readonly Violation[];

/** The engine for a schema's patterns, as ajv asks for it. */
export type PatternEngine = (pattern: string) => { test(text: string): boolean };

export interface CompileOptions {
  readonly engine: PatternEngine;
  /**
   * Collect every violation rather than stop at the first. The library keeps an object per violation without bound,
   * so only for values and schemas whose steps are bounded.
   */
  readonly everything: boolean;
}

export function compileSchema(linked: Linked, options: CompileOptions): { readonly judge: Judge } | { readonly problem: SchemaProblem } {
  // A fresh instance a schema: nothing that one schema declares can be seen by another, and dropping it frees all.
  const ajv = linked.dialect.newAjv({
    strict: false,
    logger: false,
    meta: false,
    validateSchema: false,
    ownProperties: true,
    // Inlining copies a referred-to schema into every place that refers to it.
    inlineRefs: false,
    allErrors: options.everything,
    // Errors then carry the schema they come from, for messages that help. They never carry their value outside.
    verbose: true,
    code: {
      // The optimiser is quadratic, and what it gains is gained again by V8.
      optimize: false,
      regExp: Object.assign(options.engine, { code: "" }),
      process: bareEvaluatedProperties,
    },
  });
  try {
    const validate = ajv.compile(linked.schema);
    return {
      judge: (value) => {
        if (validate(value)) return [];
        const violations = violationsOf((validate.errors ?? []) as ErrorObject[]);
        // Otherwise the last value would live as long as the schema.
        validate.errors = null;
        return violations;
      },
    };
  } catch (error) {
    const deep = error instanceof RangeError;
    const why = error instanceof Error ? error.message : String(error);
    return { problem: { path: "", message: deep ? "the schema is nested too deeply" : `the schema cannot be used: ${why}` } };
  }
}

/**
 * The library notes evaluated properties in `{}`, where `constructor` and its like are found without having been
 * noted, so that `unevaluatedProperties: false` would let them pass.
 */
function bareEvaluatedProperties(code: string): string {
  return code.replace(/\b(props\d+) = \{\}|\b(props\d+) \|\| \{\}/g, (_all, assigned?: string, merged?: string) =>
    assigned !== undefined ? `${assigned} = {__proto__:null}` : `${merged} || {__proto__:null}`,
  );
}

export const nativeEngine: PatternEngine = (pattern) => {
  const native = nativePattern(pattern);
  if (native === undefined) throw new SyntaxError("a pattern is not a regular expression");
  return native;
};

/** Thrown out of a judgement whose patterns have taken more work than its meter allows. */
export class MeterRunOut extends Error {}

/** Bounds the work of linear patterns in one judgement. */
export class Meter {
  #left = 0;

  reset(work: number): void {
    this.#left = work;
  }

  spend(work: number): void {
    this.#left -= work;
    if (this.#left < 0) throw new MeterRunOut("the patterns of the schema take too much work for this value");
  }
}

export function linearEngine(patterns: ReadonlyMap<string, LinearPattern>, meter: Meter): PatternEngine {
  return (pattern) => {
    const linear = patterns.get(pattern);
    if (linear === undefined) throw new SyntaxError("a pattern has no linear form");
    return {
      test: (text) => {
        meter.spend((text.length + 16) * linear.size);
        return linear.matcher.test(text);
      },
      // The library takes matchers with one text to be one matcher.
      toString: () => pattern,
    };
  };
}
