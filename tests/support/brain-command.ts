import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const MAIN = fileURLToPath(new URL("../../server/dist/main.js", import.meta.url));
const MEMORY_PROBE = fileURLToPath(new URL("./memory-probe.mjs", import.meta.url));

export interface BrainCommandOptions {
  /** Over what this process has; `undefined` takes a variable away. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** With a probe inside that answers `memory()`. */
  readonly probed?: boolean;
  readonly cwd?: string;
}

export interface Memory {
  /** Bytes, after a full collection. */
  readonly heapUsed: number;
  /** Timers that keep the process alive. */
  readonly timers: number;
}

/** The `brain` command, run as a person runs it, with everything it says kept as it said it. */
export class BrainCommand {
  readonly #process: ChildProcess;
  readonly #exited: Promise<number | string>;
  readonly #listening: Promise<string>;
  /** As written. */
  stdout = "";
  /** Line by line. */
  readonly stderr: string[] = [];

  constructor(args: readonly string[], options: BrainCommandOptions = {}) {
    const environment: NodeJS.ProcessEnv = { ...process.env };
    for (const name of Object.keys(environment)) if (name.startsWith("BRAIN_")) delete environment[name];
    for (const [name, value] of Object.entries(options.environment ?? {})) environment[name] = value;
    const probe = options.probed === true ? ["--expose-gc", "--import", MEMORY_PROBE] : [];
    this.#process = spawn(process.execPath, [...probe, MAIN, ...args], {
      env: environment,
      stdio: ["ignore", "pipe", "pipe", ...(options.probed === true ? (["ipc"] as const) : [])],
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    });
    const { stdout, stderr } = this.#process;
    if (stdout === null || stderr === null) throw new Error("the command has no output");
    // `close` comes when all that was written has been read; `exit` may come before.
    this.#exited = once(this.#process, "close").then(([code, signal]) => (code ?? signal) as number | string);
    createInterface({ input: stderr }).on("line", (line) => this.stderr.push(line));
    stdout.setEncoding("utf8");
    this.#listening = new Promise((resolve, reject) => {
      stdout.on("data", (chunk: string) => {
        this.stdout += chunk;
        const url = /^brain listening on (\S+)\n/m.exec(this.stdout)?.[1];
        if (url !== undefined) resolve(url);
      });
      this.#exited.then(() => reject(new Error(`the command ended before it listened:\n${this.stderr.join("\n")}`)), reject);
    });
    this.#listening.catch(() => undefined);
  }

  /** Resolves with the URL once the server says that it listens. */
  listening(): Promise<string> {
    return this.#listening;
  }

  /** The exit code, or the signal that ended it, once all of its output is here. */
  exited(): Promise<number | string> {
    return this.#exited;
  }

  signal(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  /** Resolves with the first line on stderr that has the text, now or later; rejects when the command ends without. */
  async said(text: string): Promise<string> {
    const found = (): string | undefined => this.stderr.find((line) => line.includes(text));
    const lines = this.#process.stderr;
    while (found() === undefined) {
      const ended = this.#exited.then(() => true);
      const more = lines === null ? ended : once(lines, "data").then(() => false);
      if ((await Promise.race([ended, more])) && found() === undefined) {
        throw new Error(`the command ended without saying "${text}":\n${this.stderr.join("\n")}`);
      }
      // The reader of lines gets the same chunk right after this one.
      await new Promise((resolve) => setImmediate(resolve));
    }
    return found() ?? "";
  }

  /** What the process holds, after a full collection. Only of a probed one. */
  async memory(): Promise<Memory> {
    this.#process.send("memory");
    const [answer] = (await once(this.#process, "message")) as [Memory];
    return answer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.#exited;
  }
}
