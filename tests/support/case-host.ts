import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Memory } from "./brain-command.js";
import type { HostEvent } from "./case-tools.js";

const PROGRAM = fileURLToPath(new URL("./case-host-program.ts", import.meta.url));
const MEMORY_PROBE = fileURLToPath(new URL("./memory-probe.mjs", import.meta.url));

export interface CaseHostOptions {
  readonly url: string;
  readonly token: string;
  /** One line for each run of a function: `session_id/call_sequence`. */
  readonly counterFile: string;
  readonly hostRoute?: "auto" | "attach" | "watch" | "sse";
  /** Registers a host of its own without them. */
  readonly credentials?: { readonly hostId: string; readonly hostToken: string };
  readonly probed?: boolean;
}

/** A process that serves the case Tools (case-tools.ts) in Environment `app`. */
export class CaseHost {
  readonly #process: ChildProcess;
  readonly #events: HostEvent[] = [];
  readonly #wakers = new Set<() => void>();
  readonly stderr: string[] = [];
  hostId = "";
  hostToken = "";

  private constructor(options: CaseHostOptions) {
    const { url, token, counterFile, hostRoute, credentials, probed = false } = options;
    this.#process = fork(PROGRAM, {
      execArgv: ["--import", "tsx", ...(probed ? ["--expose-gc", "--import", MEMORY_PROBE] : [])],
      env: {
        ...process.env,
        BRAIN_URL: url,
        BRAIN_TOKEN: token,
        COUNTER_FILE: counterFile,
        ...(hostRoute === undefined ? {} : { HOST_ROUTE: hostRoute }),
        ...(credentials === undefined ? {} : { HOST_ID: credentials.hostId, HOST_TOKEN: credentials.hostToken }),
      },
      stdio: ["ignore", "inherit", "pipe", "ipc"],
    });
    if (this.#process.stderr === null) throw new Error("the host has no stderr");
    createInterface({ input: this.#process.stderr }).on("line", (line) => this.stderr.push(line));
    this.#process.on("message", (message) => {
      if (typeof message !== "object" || message === null || !("event" in message)) return;
      this.#events.push(message as HostEvent);
      this.#wake();
    });
    this.#process.on("exit", () => this.#wake());
  }

  static async start(options: CaseHostOptions): Promise<CaseHost> {
    const host = new CaseHost(options);
    const { hostId, hostToken } = await host.event("serving");
    host.hostId = String(hostId);
    host.hostToken = String(hostToken);
    return host;
  }

  get alive(): boolean {
    return this.#process.exitCode === null && this.#process.signalCode === null;
  }

  /** What its Brain object said to people so far. */
  get logLines(): readonly string[] {
    return this.#events.flatMap(({ event, line }) => (event === "log" ? [String(line)] : []));
  }

  /** The first event of this name with these details, now or later. Rejects when the process ends without it. */
  async event(name: string, details: Readonly<Record<string, unknown>> = {}): Promise<HostEvent> {
    for (;;) {
      const found = this.#events.find(
        (event) => event.event === name && Object.entries(details).every(([detail, value]) => event[detail] === value),
      );
      if (found !== undefined) return found;
      if (!this.alive) throw new Error(`the host ended without saying ${name} ${JSON.stringify(details)}:\n${this.stderr.join("\n")}`);
      await new Promise<void>((resolve) => this.#wakers.add(resolve));
    }
  }

  /** Serves one more Tool, which answers `{ input, environment, name }`. */
  async serve(tool: { environment?: string; name: string; description?: string; schema?: unknown }): Promise<void> {
    this.#process.send({ order: "serve", ...tool });
    await this.event("served", { name: tool.name, environment: tool.environment ?? "app" });
  }

  async memory(): Promise<Memory> {
    this.#process.send("memory");
    for (;;) {
      const [answer] = (await once(this.#process, "message")) as [Memory | HostEvent];
      if ("heapUsed" in answer) return answer as Memory;
    }
  }

  /** Leaves as a program does that has nothing more to do: closes its Brain object, and ends by itself. */
  async leave(withinMs = 10_000): Promise<{ code: number | null; ms: number }> {
    const exited = once(this.#process, "exit");
    const since = performance.now();
    this.#process.send({ order: "leave", withinMs });
    await exited;
    return { code: this.#process.exitCode, ms: performance.now() - since };
  }

  #wake(): void {
    const wakers = [...this.#wakers];
    this.#wakers.clear();
    for (const wake of wakers) wake();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.alive) return;
    const exited = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await exited;
  }
}
