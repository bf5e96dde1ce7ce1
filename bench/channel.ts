/** What the processes of a benchmark say to each other. */
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Cell, Span } from "./measure.js";

/** From the benchmark to a server: make calls for a while. */
export type Ask = Span & { readonly type: "measure" };

/** From a server or a host to the benchmark. */
export type Tell =
  | { readonly type: "listening"; readonly url: string }
  | { readonly type: "attached"; readonly sessionIds: readonly string[] }
  | { readonly type: "measured"; readonly cell: Cell };

type Told<T extends Tell["type"]> = Extract<Tell, { type: T }>;

const START_MS = 30_000;
const STOP_MS = 5_000;

/** A process of the benchmark, as the benchmark holds it. */
export class Peer {
  readonly #file: string;
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown>;

  /** `nodeFlags` are added to those of this process. */
  constructor(file: string, parameters: readonly string[], nodeFlags: readonly string[] = []) {
    this.#file = file;
    this.#child = fork(fileURLToPath(new URL(file, import.meta.url)), parameters, { execArgv: [...process.execArgv, ...nodeFlags] });
    this.#exited = new Promise((resolve) => this.#child.once("exit", resolve));
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  tell(ask: Ask): void {
    this.#child.send(ask);
  }

  /** The next message, which is to be of this type. @throws Error when it is another, does not come, or the process ends */
  next<T extends Tell["type"]>(type: T, withinMs = START_MS): Promise<Told<T>> {
    return new Promise((resolve, reject) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#child.off("message", arrived);
        this.#child.off("exit", ended);
      };
      const fail = (what: string): void => {
        done();
        reject(new Error(`${this.#file} ${what} instead of saying "${type}"; what it wrote above says why`));
      };
      const arrived = (message: unknown): void => {
        const told = message as Tell;
        if (told.type !== type) fail(`said "${told.type}"`);
        else {
          done();
          resolve(told as Told<T>);
        }
      };
      const ended = (code: number | null): void => fail(`ended with code ${code}`);
      const timer = setTimeout(() => fail(`was silent for ${withinMs} ms`), withinMs);
      this.#child.on("message", arrived);
      this.#child.once("exit", ended);
    });
  }

  /** Lets the process end by itself, within a bound. */
  async close(): Promise<void> {
    if (this.#child.connected) this.#child.disconnect();
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), STOP_MS);
    await this.#exited;
    clearTimeout(timer);
  }
}

/** Said by a process of the benchmark. */
export function tell(message: Tell): void {
  process.send?.(message);
}

/** Measures what the benchmark asks for; when it lets go, or is gone, closes and ends this process. */
export function hear(answer: (span: Span) => Promise<Cell>, close: () => Promise<void>): void {
  process.on("message", (message) => {
    answer(message as Ask).then((cell) => tell({ type: "measured", cell }), fail);
  });
  process.once("disconnect", () => {
    close().then(() => process.exit(0), fail);
  });
}

/** Ends this process: a figure of a run in which something failed is worth nothing. */
export function fail(error: unknown): never {
  console.error(error);
  process.exit(1);
}
