import type { Config } from "../config.js";
import { HostEnvironment } from "../environments/host/host-environment.js";
import type { Environments } from "../environments/port.js";
import type { Journal } from "../journal/port.js";
import type { Validator } from "../validation/port.js";
import { Calls } from "./calls.js";
import type { Clock } from "./clock.js";
import { Hosts } from "./hosts.js";
import type { Log } from "./log.js";
import { Records } from "./records.js";
import { Sessions } from "./sessions.js";

export interface BrainPorts {
  readonly journal: Journal;
  readonly validator: Validator;
  readonly clock: Clock;
  readonly config: Config;
  readonly log: Log;
  readonly serverVersion: string;
}

/** Brain without a port: what the RPCs call, and what a program can hold in its own process. */
export interface Brain {
  readonly sessions: Sessions;
  readonly hosts: Hosts;
  readonly records: Records;
  readonly calls: Calls;
  /** Takes up the open calls of an earlier process; answers how many. */
  recover(): Promise<number>;
  /** The server listens: instances have a full grace from now on to come back. */
  listening(): void;
  /** No new work; calls in flight may finish within `withinMs`; then every command stream is closed. */
  drain(withinMs: number): Promise<void>;
}

export function createBrain(ports: BrainPorts): Brain {
  const { journal, clock, config, log } = ports;
  const hostEnvironment = new HostEnvironment({
    clock,
    config,
    serverVersion: ports.serverVersion,
    hostExists: async (hostId) => (await journal.findHost(hostId)) !== undefined,
  });
  const environments: Environments = { host: hostEnvironment };
  const sessions = new Sessions({ journal, clock, validator: ports.validator, environments, config, log });
  const hosts = new Hosts({ journal, clock, environment: hostEnvironment, sessions });
  return {
    sessions,
    hosts,
    records: new Records({ journal, clock }),
    calls: new Calls(journal),
    recover: () => sessions.recover(),
    listening: () => hostEnvironment.listening(),
    async drain(withinMs) {
      sessions.drain();
      hostEnvironment.drain();
      await sessions.quiet(withinMs);
      hostEnvironment.close();
      sessions.close();
    },
  };
}
