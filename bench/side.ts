import { mkdirSync } from "node:fs";
import { Peer } from "./channel.js";
import { usedMs } from "./cpu.js";
import type { Cell } from "./measure.js";

const FILES = {
  floor: { server: "./floor-server.ts", host: "./floor-host.ts" },
  brain: { server: "./server.ts", host: "./host.ts" },
} as const;

/** A cell, and the processor time that each process took for a call, in microseconds; NaN where it cannot be told. */
export interface SideCell extends Cell {
  readonly serverUs: number;
  readonly hostUs: number;
}

/** One of the two that are compared: a server process, where the calls are made, and a host process, which runs them. */
export class Side {
  readonly name: keyof typeof FILES;
  readonly #server: Peer;
  readonly #host: Peer;
  readonly #sessionIds: readonly string[];

  private constructor(name: keyof typeof FILES, server: Peer, host: Peer, sessionIds: readonly string[]) {
    this.name = name;
    this.#server = server;
    this.#host = host;
    this.#sessionIds = sessionIds;
  }

  static async open(name: keyof typeof FILES, directory: string, sessions: number): Promise<Side> {
    mkdirSync(directory, { recursive: true });
    // Both servers run as the brain command runs itself; see server/bin/brain.js.
    const server = new Peer(FILES[name].server, [directory], ["--max-semi-space-size=32"]);
    const { url } = await server.next("listening");
    const host = new Peer(FILES[name].host, [url, String(sessions)]);
    const { sessionIds } = await host.next("attached");
    return new Side(name, server, host, sessionIds);
  }

  get pids(): readonly number[] {
    return [this.#server.pid, this.#host.pid];
  }

  /** Makes calls for that long, so many at any time, each of them in a session of its own. */
  async measure(inFlight: number, milliseconds: number, profile?: string): Promise<SideCell> {
    const sessionIds = this.#sessionIds.slice(0, inFlight);
    const [serverMs, hostMs] = [usedMs(this.#server.pid), usedMs(this.#host.pid)];
    this.#server.tell({ type: "measure", inFlight, milliseconds, sessionIds, ...(profile === undefined ? {} : { profile }) });
    const { cell } = await this.#server.next("measured", milliseconds + 60_000);
    return {
      ...cell,
      serverUs: ((usedMs(this.#server.pid) - serverMs) / cell.calls) * 1000,
      hostUs: ((usedMs(this.#host.pid) - hostMs) / cell.calls) * 1000,
    };
  }

  async close(): Promise<void> {
    await this.#host.close();
    await this.#server.close();
  }
}
