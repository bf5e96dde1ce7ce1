import type { SchemaProblem, Verdict } from "./port.js";

/** What is asked of a validation thread, one at a time. Values travel as text: parsing is part of what is limited. */
export interface Question {
  readonly sha256: string;
  /** The schema's text; absent when the thread has the schema compiled. */
  readonly schema: string | undefined;
  /** The value to judge; absent when the schema is to be checked. */
  readonly text: string | undefined;
  /** Limit of compiling, if that is needed. */
  readonly compileMs: number;
  /** Limit of judging. */
  readonly judgeMs: number;
  /** Limit of both together for this turn; the question may be asked again with a longer one. */
  readonly turnMs: number;
}

export type Answer =
  | { readonly type: "checked"; readonly problem: SchemaProblem | undefined }
  | { readonly type: "judged"; readonly verdict: Verdict }
  /** Stopped at its own limit: there is no other answer. */
  | { readonly type: "stopped" }
  /** Stopped at the end of the turn. */
  | { readonly type: "turn over" }
  /** Stopped although most of the time the thread had no processor: this says nothing about the question. */
  | { readonly type: "starved" };

export type ThreadMessage =
  /** Sent once, when everything is loaded and warm. */
  | { readonly type: "ready" }
  | {
      readonly type: "answered";
      readonly answer: Answer;
      /** What the turn took, waiting for a processor left out. */
      readonly busyMs: number;
      /** Schemas whose text must be sent again. */
      readonly forgotten: readonly string[];
    };

/** What a validation thread keeps: compiled code is some fifty times the schema's text. */
export const THREAD_SCHEMAS = 256;
export const THREAD_SCHEMA_CHARACTERS = 1024 * 1024;
