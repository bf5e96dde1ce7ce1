import type { CallReference, HostAttachment, Receiver } from "@aexhq/brain-proto";
import type { Clock } from "../../runtime/clock.js";
import type { OpenCall } from "../port.js";
import type { CommandStream } from "./command-stream.js";

/** An open call of a host, and who holds it. */
export interface HostCall {
  readonly call: OpenCall;
  readonly receiver: Receiver;
  readonly holders: Set<Instance>;
}

export interface InstanceTimes {
  readonly heartbeatMs: number;
  readonly graceMs: number;
}

/**
 * One process attached as a Host, as Brain knows it. Three facts are kept apart: its stream is lost, nothing is
 * heard from it (silent), it is gone. Only the last ends calls.
 */
export class Instance {
  readonly hostId: string;
  readonly instanceId: string;
  /** The highest generation seen of it, by attach or by the record of a call. */
  generation = 0;
  stream: CommandStream | undefined;
  silent = false;
  concurrency = 0;
  /** "environment/name" to the SHA-256 it serves; undefined serves every placement of the host. */
  served: ReadonlyMap<string, string> | undefined;
  servedTools: HostAttachment["servedTools"] = [];
  /** Calls whose record names this instance: its slots in use. */
  readonly named = new Set<HostCall>();
  /** Calls it holds: the named ones, and those it lists. */
  readonly holds = new Set<HostCall>();
  lastHeardWallMs = 0;

  readonly #clock: Clock;
  readonly #times: InstanceTimes;
  readonly #onSilent: (instance: Instance) => void;
  readonly #onGone: (instance: Instance) => void;
  #heardAt = 0;
  #dueAt = 0;
  /** A timer that fires late was excused once: a stalled Brain is not a dead peer. */
  #excused = false;
  #disarm: (() => void) | undefined;
  #watched = false;

  constructor(
    name: { hostId: string; instanceId: string },
    clock: Clock,
    times: InstanceTimes,
    on: { silent: (instance: Instance) => void; gone: (instance: Instance) => void },
  ) {
    this.hostId = name.hostId;
    this.instanceId = name.instanceId;
    this.#clock = clock;
    this.#times = times;
    this.#onSilent = on.silent;
    this.#onGone = on.gone;
    this.heard();
  }

  /** Begins to miss it when it is not heard: full times from now on. */
  watch(): void {
    this.#watched = true;
    this.heard();
  }

  /** Commands can be written to it, and it is believed to read them. */
  get attached(): boolean {
    return this.stream?.open === true && !this.silent;
  }

  get free(): boolean {
    return this.attached && this.named.size < this.concurrency;
  }

  /** Any sign of life, on any route. */
  heard(): void {
    this.#heardAt = this.#clock.monotonic();
    this.lastHeardWallMs = this.#clock.now();
    this.#excused = false;
    // The timer of a silent one waits for the grace; the next silence is found sooner.
    if (this.silent || this.#disarm === undefined) this.#arm(3 * this.#times.heartbeatMs);
    this.silent = false;
  }

  /** Stops the watch over it, for good. */
  forget(): void {
    this.#watched = false;
    this.#disarm?.();
  }

  serves(environment: string, name: string, definitionSha256: string): boolean {
    if (this.served === undefined) return true;
    const served = this.served.get(`${environment}/${name}`);
    return served !== undefined && (served === "" || served === definitionSha256);
  }

  #arm(delayMs: number): void {
    this.#disarm?.();
    if (!this.#watched) return;
    this.#dueAt = this.#clock.monotonic() + delayMs;
    this.#disarm = this.#clock.after(delayMs, () => this.#check());
  }

  #check(): void {
    const now = this.#clock.monotonic();
    const { heartbeatMs, graceMs } = this.#times;
    if (now - this.#dueAt > heartbeatMs && !this.#excused) {
      this.#excused = true;
      this.#arm(heartbeatMs);
      return;
    }
    const quietMs = now - this.#heardAt;
    if (quietMs >= graceMs) {
      this.forget();
      this.#onGone(this);
      return;
    }
    if (quietMs < 3 * heartbeatMs) {
      this.#arm(3 * heartbeatMs - quietMs);
      return;
    }
    this.#arm(graceMs - quietMs);
    if (!this.silent) {
      this.silent = true;
      this.#onSilent(this);
    }
  }
}

export function keyOf(call: Pick<CallReference, "sessionId" | "callSequence">): string {
  return `${call.sessionId}/${call.callSequence}`;
}
