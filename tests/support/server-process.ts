import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const MAIN = fileURLToPath(new URL("../../server/dist/main.js", import.meta.url));
const START_MS = 10_000;

export interface ServerProcessOptions {
  /** Without it the server has none, and asks for none. */
  apiToken?: string;
  /** More flags of `brain serve`. */
  flags?: readonly string[];
  /** An address of its own choice (port 0) without it. */
  listen?: string;
  /** A new directory, deleted with the server, without it. */
  dataDir?: string;
}

/** A real `brain serve` in a process of its own. */
export class ServerProcess {
  readonly url: string;
  readonly dataDir: string;
  readonly #options: ServerProcessOptions;
  readonly #process: ChildProcess;
  readonly #stderr: string[];
  readonly #ownsDataDir: boolean;

  private constructor(
    options: ServerProcessOptions,
    dataDir: string,
    process: ChildProcess,
    url: string,
    stderr: string[],
    ownsDataDir: boolean,
  ) {
    this.#options = options;
    this.dataDir = dataDir;
    this.#process = process;
    this.url = url;
    this.#stderr = stderr;
    this.#ownsDataDir = ownsDataDir;
  }

  static async start(options: ServerProcessOptions = {}): Promise<ServerProcess> {
    const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), "brain-")));
    return await ServerProcess.#spawn(options, dataDir, options.dataDir === undefined);
  }

  static async #spawn(options: ServerProcessOptions, dataDir: string, ownsDataDir: boolean): Promise<ServerProcess> {
    const { apiToken, flags = [], listen = "127.0.0.1:0" } = options;
    const { BRAIN_API_TOKEN: _, ...environment } = process.env;
    const child = spawn(process.execPath, [MAIN, "serve", "--listen", listen, "--data-dir", dataDir, ...flags], {
      env: apiToken === undefined ? environment : { ...environment, BRAIN_API_TOKEN: apiToken },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const stderr: string[] = [];
    createInterface({ input: child.stderr }).on("line", (line) => stderr.push(line));
    const listening = (async () => {
      for await (const line of createInterface({ input: child.stdout })) {
        const url = /^brain listening on (\S+)$/.exec(line)?.[1];
        if (url !== undefined) return url;
      }
      throw new Error(`brain serve ended before it listened:\n${stderr.join("\n")}`);
    })();
    const late = new Promise<never>((_resolve, reject) => {
      setTimeout(() => reject(new Error(`brain serve did not listen within ${START_MS} ms:\n${stderr.join("\n")}`)), START_MS).unref();
    });
    try {
      return new ServerProcess(options, dataDir, child, await Promise.race([listening, late]), stderr, ownsDataDir);
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    }
  }

  /** What the server wrote to stderr so far, line by line. */
  get stderr(): readonly string[] {
    return this.#stderr;
  }

  get pid(): number {
    if (this.#process.pid === undefined) throw new Error("the server has no process");
    return this.#process.pid;
  }

  /** Sends a signal, and waits for the process to end: SIGTERM drains, SIGKILL crashes. Resolves with the exit code. */
  async stop(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<number | null> {
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      const exited = once(this.#process, "exit");
      this.#process.kill(signal);
      await exited;
    }
    return this.#process.exitCode;
  }

  /** A new process on the same address and data, after this one has been stopped. */
  async restart(): Promise<ServerProcess> {
    const options = { ...this.#options, listen: new URL(this.url).host };
    return await ServerProcess.#spawn(options, this.dataDir, this.#ownsDataDir);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop("SIGKILL");
    if (this.#ownsDataDir) await rm(this.dataDir, { recursive: true, force: true });
  }
}
