import { appendFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ToolContext } from "@aexhq/brain";

/** Counts the runs of functions of this process in a file, by call. */
export class CountedRuns {
  readonly #folder = mkdtempSync(join(tmpdir(), "brain-runs-"));
  readonly #file = join(this.#folder, "runs");

  constructor() {
    appendFileSync(this.#file, "");
  }

  /** The function, counted before it does anything. */
  counting<Input, Options, Output>(run: (input: Input, ctx: ToolContext<Options>) => Output) {
    return (input: Input, ctx: ToolContext<Options>): Output => {
      appendFileSync(this.#file, `${ctx.sessionId}/${ctx.sequence}\n`);
      return run(input, ctx);
    };
  }

  /** Of one call, of one session, or in all. */
  of(sessionId = "", callSequence?: number): number {
    const prefix = callSequence === undefined ? `${sessionId}${sessionId === "" ? "" : "/"}` : `${sessionId}/${callSequence}`;
    return this.#all().filter((call) => (callSequence === undefined ? call.startsWith(prefix) : call === prefix)).length;
  }

  /** The calls that a function ran more than once for. */
  get repeated(): string[] {
    const all = this.#all();
    return all.filter((call, index) => all.indexOf(call) !== index);
  }

  #all(): string[] {
    return readFileSync(this.#file, "utf8").split("\n").filter(Boolean);
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
