import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** A TypeScript program in a process of its own, which says on stdout, line by line, how far it is. */
export class HostProcess {
  readonly #process: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly stderr: string[] = [];

  constructor(program: URL, environment: Readonly<Record<string, string>>) {
    this.#process = spawn(process.execPath, ["--import", "tsx", program.pathname], {
      env: { ...process.env, ...environment },
      stdio: ["pipe", "pipe", "pipe"],
    });
    if (this.#process.stdout === null || this.#process.stderr === null) throw new Error("the host has no output");
    this.#lines = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]();
    createInterface({ input: this.#process.stderr }).on("line", (line) => this.stderr.push(line));
  }

  /** The next line it says. */
  async line(): Promise<string> {
    const { done, value } = await this.#lines.next();
    if (done) throw new Error(`the host ended before it said more:\n${this.stderr.join("\n")}`);
    return value;
  }

  say(line: string): void {
    this.#process.stdin?.write(`${line}\n`);
  }

  kill(): void {
    this.#process.kill("SIGKILL");
  }

  async exitCode(): Promise<number | null> {
    if (this.#process.exitCode === null && this.#process.signalCode === null) await once(this.#process, "exit");
    return this.#process.exitCode;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.kill();
    await this.exitCode();
  }
}
