import { failure } from "../../core/outcome.js";
import type { Clock } from "../../runtime/clock.js";
import type { WaitingCall } from "../port.js";
import type { Instance } from "./instance.js";

interface Waiter {
  readonly call: WaitingCall;
  disarm: (() => void) | undefined;
}

export interface WaitingLimits {
  readonly hostWaitMs: number;
  readonly waitingPerHost: number;
}

/**
 * The calls of one host that wait for an instance with a free slot, in the order they came. They are in no
 * record: a crash forgets them, nothing was sent, and the caller's repeat starts them.
 *
 * 1. `host_wait` runs for a call exactly while no attached instance serves its Tool.
 * 2. "Still waiting, slot free, reserve" is one synchronous step.
 * 3. That step is a decision of its own: it is never taken inside the decision that freed the slot.
 */
export class WaitingList {
  readonly #hostId: string;
  readonly #instances: () => Iterable<Instance>;
  readonly #clock: Clock;
  readonly #limits: WaitingLimits;
  readonly #waiters = new Map<WaitingCall, Waiter>();
  #waking = false;
  #wakeAgain = false;
  #wakeDue = false;

  constructor(hostId: string, instances: () => Iterable<Instance>, clock: Clock, limits: WaitingLimits) {
    this.#hostId = hostId;
    this.#instances = instances;
    this.#clock = clock;
    this.#limits = limits;
  }

  get size(): number {
    return this.#waiters.size;
  }

  acquire(call: WaitingCall): void {
    // Whoever came first is served first: a newcomer overtakes nobody who could take the same slot.
    if (this.#wakeDue) this.wake();
    const instance = this.#reservable(call);
    if (instance !== undefined) {
      grant(call, instance);
      return;
    }
    if (this.#waiters.size >= this.#limits.waitingPerHost) {
      const message = `${this.#waiters.size} calls wait for host ${this.#hostId} already; attach more instances or call less at once`;
      call.giveUp(failure("host_overloaded", message, { retryable: true }));
      return;
    }
    const waiter: Waiter = { call, disarm: undefined };
    this.#waiters.set(call, waiter);
    this.#watch(waiter);
  }

  leave(call: WaitingCall): void {
    this.#waiters.get(call)?.disarm?.();
    this.#waiters.delete(call);
  }

  /** A decision that is being taken frees a slot: wakes as soon as that decision is complete. */
  wakeSoon(): void {
    if (this.#wakeDue || this.#waiters.size === 0) return;
    this.#wakeDue = true;
    queueMicrotask(() => this.wake());
  }

  /** A slot may be free: after an attach, an ending, or a start that could not be recorded. */
  wake(): void {
    this.#wakeDue = false;
    this.#wakeAgain = true;
    if (this.#waking) return;
    this.#waking = true;
    try {
      while (this.#wakeAgain) {
        this.#wakeAgain = false;
        for (const { call } of this.#waiters.values()) {
          if (!this.#anyFree()) break;
          const instance = this.#reservable(call);
          if (instance === undefined) continue;
          this.leave(call);
          grant(call, instance);
        }
      }
    } finally {
      this.#waking = false;
    }
  }

  /** Which instances are attached has changed. */
  attachmentsChanged(): void {
    for (const waiter of this.#waiters.values()) this.#watch(waiter);
  }

  #watch(waiter: Waiter): void {
    const { call } = waiter;
    const served = this.#anyServing(call);
    if (served) {
      waiter.disarm?.();
      waiter.disarm = undefined;
    } else if (waiter.disarm === undefined) {
      waiter.disarm = this.#clock.after(this.#limits.hostWaitMs, () => {
        this.#waiters.delete(call);
        const { definition, environment } = call.placement;
        const message = `no attached instance of host ${this.#hostId} serves Tool ${definition.name} in Environment ${environment.name}; start one, or look at GetHost`;
        call.giveUp(failure("host_unavailable", message, { retryable: true }));
      });
    }
  }

  #anyFree(): boolean {
    for (const instance of this.#instances()) if (instance.free) return true;
    return false;
  }

  #anyServing(call: WaitingCall): boolean {
    for (const instance of this.#instances()) if (instance.attached && serves(instance, call)) return true;
    return false;
  }

  /** The least loaded instance that serves the Tool and has a free slot. */
  #reservable(call: WaitingCall): Instance | undefined {
    let least: Instance | undefined;
    for (const instance of this.#instances()) {
      if (instance.free && serves(instance, call) && (least === undefined || instance.named.size < least.named.size)) least = instance;
    }
    return least;
  }
}

function serves(instance: Instance, call: WaitingCall): boolean {
  return instance.serves(call.placement.environment.name, call.placement.definition.name, call.definitionSha256);
}

function grant(call: WaitingCall, instance: Instance): void {
  const { hostId, instanceId, generation } = instance;
  call.grant({ $typeName: "brain.v1.Receiver", hostId, instanceId, generation });
}
