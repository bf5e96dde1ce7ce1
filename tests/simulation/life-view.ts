import type { Receiver, ToolCallStarted } from "@aexhq/brain-proto";
import type { CallRow } from "../../server/src/journal/port.js";
import { keyOf } from "./truth.js";

export interface DecidedCall {
  readonly key: string;
  readonly callId: string;
  readonly deadlineMs: number;
  readonly receiver: Receiver;
}

/**
 * What one life of the server has been told by instances and has decided, as seen from outside: by what was delivered to
 * it and by what it asked its journal to append.
 */
export class LifeView {
  readonly startedAt: number;
  readonly graceMs: number;
  listeningAt = Number.POSITIVE_INFINITY;
  /** While it did nothing. */
  readonly stalls: { from: number; to: number }[] = [];
  readonly #heard = new Map<string, Moments>();
  readonly #detached = new Map<string, Moments>();
  /** Instances that listed a call, beside the one its record names; false where it may have been overheard. */
  readonly #listedBy = new Map<string, Map<string, boolean>>();
  /** Calls that were open when it began. */
  readonly reopened = new Set<string>();
  /** Calls that are open by its newest decisions. */
  readonly open = new Map<string, DecidedCall>();
  readonly #named = new Map<string, Set<string>>();
  /** Calls with an ending that the journal refused. */
  readonly refusedEndings = new Set<string>();
  /** Endings that are decided and neither durable nor refused, by call. */
  readonly pendingEndings = new Map<string, number>();
  /** The newest accepted attach, and the slots of every one. */
  readonly generation = new Map<string, number>();
  readonly slots = new Map<string, number>();
  /** Instances that leave the number of an attach to the server. */
  readonly unnumbered = new Set<string>();
  /** The newest stream of an instance, and when its window was full last. */
  readonly streams = new Map<string, { readonly generation: number; blockedAt(): number }>();

  constructor(startedAt: number, graceMs: number, open: Iterable<CallRow>) {
    this.startedAt = startedAt;
    this.graceMs = graceMs;
    for (const row of open) {
      this.opened(keyOf(row), row.started);
      this.reopened.add(keyOf(row));
    }
  }

  opened(key: string, started: ToolCallStarted): void {
    const { receiver, deadline, callId } = started;
    if (receiver === undefined) return;
    const deadlineMs = Number(deadline?.seconds ?? 0n) * 1000 + (deadline?.nanos ?? 0) / 1e6;
    this.open.set(key, { key, callId, receiver, deadlineMs });
    this.namedBy(receiver.instanceId).add(key);
  }

  closed(key: string): DecidedCall | undefined {
    const call = this.open.get(key);
    if (call === undefined) return undefined;
    this.open.delete(key);
    this.namedBy(call.receiver.instanceId).delete(key);
    return call;
  }

  namedBy(instanceId: string): Set<string> {
    let named = this.#named.get(instanceId);
    if (named === undefined) {
      named = new Set();
      this.#named.set(instanceId, named);
    }
    return named;
  }

  /** A sign of life. `sure` is false where the server may have closed the stream it came on. */
  hear(instanceId: string, at: number, sure: boolean): void {
    note(this.#heard, instanceId, at, sure);
  }

  heardAt(instanceId: string): number | undefined {
    return this.#heard.get(instanceId)?.maybe;
  }

  detach(instanceId: string, at: number, sure: boolean): void {
    if (this.#detached.get(instanceId)?.sure === undefined) note(this.#detached, instanceId, at, sure);
  }

  hasDetached(instanceId: string): boolean {
    return this.#detached.get(instanceId)?.sure !== undefined;
  }

  list(key: string, instanceId: string, sure: boolean): void {
    let by = this.#listedBy.get(key);
    if (by === undefined) {
      by = new Map();
      this.#listedBy.set(key, by);
    }
    by.set(instanceId, sure || (by.get(instanceId) ?? false));
  }

  /** Who holds the call for sure, or also who may hold it. */
  holders(call: DecidedCall, sure: boolean): string[] {
    const { instanceId } = call.receiver;
    const listing = [...(this.#listedBy.get(call.key) ?? [])].filter(([other, isSure]) => other !== instanceId && (isSure || !sure));
    return [instanceId, ...listing.map(([other]) => other)];
  }

  /** The earliest moment at which this life may take the instance for gone, as far as it has heard by now. */
  earliestGone(instanceId: string): number {
    const heardAt = Math.max(this.#heard.get(instanceId)?.sure ?? 0, this.listeningAt);
    return Math.min(this.#detached.get(instanceId)?.maybe ?? Number.POSITIVE_INFINITY, heardAt + this.graceMs);
  }

  /** The moment at which it must. */
  latestGone(instanceId: string): number {
    const heardAt = Math.max(this.#heard.get(instanceId)?.maybe ?? 0, this.listeningAt);
    return Math.min(this.#detached.get(instanceId)?.sure ?? Number.POSITIVE_INFINITY, heardAt + this.graceMs);
  }

  /** How long it stood still between two moments. */
  stalledBetween(from: number, to: number): number {
    return this.stalls.reduce((sum, stall) => sum + Math.max(0, Math.min(to, stall.to) - Math.max(from, stall.from)), 0);
  }
}

/** When something happened last: for sure, and perhaps. */
interface Moments {
  readonly sure: number | undefined;
  readonly maybe: number;
}

function note(moments: Map<string, Moments>, instanceId: string, at: number, sure: boolean): void {
  moments.set(instanceId, { sure: sure ? at : moments.get(instanceId)?.sure, maybe: at });
}
