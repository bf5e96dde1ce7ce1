/** A schema as the catalogue holds it: its text, and the SHA-256 (hex) of its RFC 8785 canonical text. */
export interface Schema {
  readonly sha256: string;
  readonly text: string;
}

/** One rule a value broke. Carries no value of the input: it may be a secret. */
export interface Violation {
  /** JSON Pointer into the value; empty for the value itself. */
  readonly path: string;
  /** The keyword of the schema that failed, e.g. `required`. */
  readonly rule: string;
  readonly message: string;
}

export type Verdict =
  | { readonly valid: true }
  | { readonly valid: false; readonly violations: readonly Violation[] }
  /** The check was stopped at its time limit. */
  | { readonly valid: false; readonly tooCostly: true };

/** Why a schema cannot be used. */
export interface SchemaProblem {
  /** JSON Pointer into the schema. */
  readonly path: string;
  readonly message: string;
  /** Compiling it took longer than the limit. */
  readonly tooCostly?: true;
}

/**
 * JSON Schema checking that no schema and no value can use to stall other sessions.
 *
 * `source` names whose question it is, a session as a rule: questions of one source wait for each other rather than
 * for those of another. Without it each schema is a source of its own.
 */
export interface Validator {
  /** Compiles the schema; undefined when it can be used. */
  check(schema: Schema, source?: string): Promise<SchemaProblem | undefined>;
  /** Judges JSON text that `core/json.ts` has accepted. The schema has passed {@link check} at some time, perhaps in an earlier process. */
  validate(schema: Schema, text: string, source?: string): Promise<Verdict>;
  close(): Promise<void>;
}
