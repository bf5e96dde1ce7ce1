/**
 * The file in which everything that happened in a round is written down by whoever did it, so that it outlives them.
 *
 * 1. A line is written by one call of the system and flushed before what comes after it: what a killed process did is there.
 * 2. Lines of several processes follow each other in the order in which they were written.
 */
import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";

/** What the processes of a round say. `by` is the name of the process, `call` a call_id, `at` milliseconds of the wall clock. */
export type Line =
  /** The function was entered: the effect. */
  | { readonly what: "start"; readonly call: string; readonly sessionId: string; readonly callSequence: number }
  /** The function is done, with this value, or throws an error with it. */
  | { readonly what: "end"; readonly call: string; readonly value: string; readonly throws: boolean }
  | { readonly what: "emitted"; readonly call: string; readonly sequence: number; readonly mark: string }
  /** An outcome is complete (and in the outbox, where there is one) and about to be reported. */
  | { readonly what: "reporting"; readonly sessionId: string; readonly callSequence: number; readonly outcome: string }
  /** The answer to a report was read. */
  | {
      readonly what: "acknowledged";
      readonly sessionId: string;
      readonly callSequence: number;
      readonly outcome: string;
      readonly disposition: string;
    }
  /** A command was read. */
  | { readonly what: "commanded"; readonly sessionId: string; readonly callSequence: number }
  | { readonly what: "attached"; readonly instanceId: string; readonly generation: number }
  /** Brain answered the attach. */
  | { readonly what: "welcomed"; readonly instanceId: string; readonly generation: number }
  /** The process did nothing for that long, though it wanted to. */
  | { readonly what: "stalled"; readonly ms: number }
  /** The process kills itself here. */
  | { readonly what: "killed"; readonly point: string; readonly nth: number };

export type Witnessed = Line & { readonly by: string; readonly at: number };

export class Witness {
  readonly #file: number;
  readonly #by: string;

  constructor(path: string, by: string) {
    this.#file = openSync(path, "a");
    this.#by = by;
  }

  write(line: Line): void {
    writeSync(this.#file, `${JSON.stringify({ ...line, by: this.#by, at: Date.now() })}\n`);
    fsyncSync(this.#file);
  }

  close(): void {
    closeSync(this.#file);
  }
}

export function readWitness(path: string): Witnessed[] {
  return readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Witnessed);
}
