import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { BuiltPrograms } from "./built-programs.js";

export type ProgramKind = "server" | "host";

interface Word {
  readonly event: string;
  readonly [detail: string]: unknown;
}

/** A program in a process of its own that has loaded its code and waits for its order, so that a crash is followed by a quick start. */
export class Program {
  readonly kind: ProgramKind;
  readonly stderr: string[] = [];
  readonly #process: ChildProcess;
  readonly #words: Word[] = [];
  readonly #ended: Promise<void>;
  #wakers: (() => void)[] = [];

  constructor(kind: ProgramKind, path: string) {
    this.kind = kind;
    this.#process = fork(path, {
      execArgv: [],
      env: Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("BRAIN_"))),
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    if (this.#process.stderr !== null) createInterface({ input: this.#process.stderr }).on("line", (line) => this.stderr.push(line));
    this.#process.on("message", (word) => {
      this.#words.push(word as Word);
      this.#wake();
    });
    this.#ended = once(this.#process, "exit").then(() => this.#wake());
  }

  get alive(): boolean {
    return this.#process.exitCode === null && this.#process.signalCode === null;
  }

  get exitCode(): number | null {
    return this.#process.exitCode;
  }

  /** Whether it was killed, as opposed to having ended by itself. */
  get killed(): boolean {
    return this.#process.signalCode === "SIGKILL";
  }

  /** Undefined when it ends before it says so. */
  async word(event: string): Promise<Word | undefined> {
    for (;;) {
      const said = this.#words.find((word) => word.event === event);
      if (said !== undefined || !this.alive) return said;
      await new Promise<void>((resolve) => this.#wakers.push(resolve));
    }
  }

  #wake(): void {
    for (const wake of this.#wakers.splice(0)) wake();
  }

  order(order: object): void {
    if (this.alive) this.#process.send(order, () => undefined);
  }

  kill(): void {
    this.#process.kill("SIGKILL");
  }

  ended(): Promise<void> {
    return this.#ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.kill();
    await this.#ended;
  }
}

/** Programs that have loaded and do nothing yet. */
export class SparePrograms {
  readonly #spare: Readonly<Record<ProgramKind, Program[]>> = { server: [], host: [] };
  readonly #wanted: Readonly<Record<ProgramKind, number>>;
  readonly #built: BuiltPrograms;
  #closed = false;

  constructor(built: BuiltPrograms, wanted: Readonly<Record<ProgramKind, number>>) {
    this.#built = built;
    this.#wanted = wanted;
    this.#refill("server");
    this.#refill("host");
  }

  /** The one that has waited longest; once it has loaded. */
  async take(kind: ProgramKind): Promise<Program> {
    const program = this.#spare[kind].shift() ?? new Program(kind, this.#built.path(kind));
    this.#refill(kind);
    if ((await program.word("ready")) === undefined) throw new Error(`the ${kind} program did not load:\n${program.stderr.join("\n")}`);
    return program;
  }

  #refill(kind: ProgramKind): void {
    while (!this.#closed && this.#spare[kind].length < this.#wanted[kind])
      this.#spare[kind].push(new Program(kind, this.#built.path(kind)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#spare.server, ...this.#spare.host].map((program) => program[Symbol.asyncDispose]()));
  }
}
