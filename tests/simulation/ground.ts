import type { MemoryFile } from "../support/memory-journal.js";
import type { Faults } from "./faults.js";
import type { Plan } from "./function-run.js";
import type { Oracle } from "./oracle.js";
import type { Random } from "./random.js";
import type { Reached } from "./reached.js";
import type { Schedule } from "./schedule.js";
import type { Server } from "./server.js";
import type { Trace } from "./trace.js";
import type { Truth } from "./truth.js";
import type { Weather } from "./weather.js";

/** What everything in one world stands on. */
export interface Ground {
  readonly random: Random;
  readonly schedule: Schedule;
  readonly trace: Trace;
  readonly weather: Weather;
  readonly truth: Truth;
  readonly oracle: Oracle;
  readonly reached: Reached;
  readonly file: MemoryFile;
  readonly server: Server;
  /** What goes wrong at which step, beside what chance does. */
  readonly faults: Faults;
  /** What the function does with this call, where that is not left to chance. */
  planOf(callId: string): Plan | undefined;
  /** The server loses the stream of an instance; its host learns of it later. */
  loseStream(instanceId: string): void;
  /** No more troubles from here on: what is left must come to rest. */
  readonly calm: boolean;
}

export function latency(ground: Ground): number {
  return ground.random.next() * ground.weather.latencyMs;
}
