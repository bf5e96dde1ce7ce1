import type { Outcome } from "@aexhq/brain-proto";

/** A call as its caller means it. */
export interface Ask {
  readonly sessionId: string;
  readonly callId: string;
  readonly name: string;
  readonly environment: string;
  readonly inputJson: string;
  readonly timeoutMs: number;
  /** When the request first reached a server; undefined before. */
  firstArrivalMs: number | undefined;
  /** When one last reached a server that had no record of the call. */
  lastArrivalMs: number | undefined;
  cancelAsked: boolean;
  /** Nobody waits for it any more: it was answered, or refused in a way that stands. */
  over: "answered" | "refused" | undefined;
  /** Sequence of the ending that was told. */
  toldEnding: number | undefined;
}

/** What really became of a command, in the processes of the hosts. */
export interface Deed {
  /** How often the server handed its command to a stream. */
  written: number;
  /** How often a process took the command from a stream. */
  read: number;
  /** How often a function ran. */
  runs: number;
  /** What processes said came of it, in the order they first said so. */
  readonly reported: Outcome[];
  /** Events by emit_id: the sequence that was answered, or that it was refused for good. */
  readonly emits: Map<string, number | "refused">;
}

/** What happened outside the server: what was asked for, and what was done. */
export class Truth {
  readonly asks = new Map<string, Ask>();
  readonly #deeds = new Map<string, Deed>();
  readonly sessionEndsAsked = new Set<string>();
  /** The host whose functions run in an Environment of a session. */
  readonly hostOf = new Map<string, string>();

  ask(sessionId: string, callId: string): Ask | undefined {
    return this.asks.get(`${sessionId} ${callId}`);
  }

  deed(key: string): Deed {
    let deed = this.#deeds.get(key);
    if (deed === undefined) {
      deed = { written: 0, read: 0, runs: 0, reported: [], emits: new Map() };
      this.#deeds.set(key, deed);
    }
    return deed;
  }

  get deeds(): ReadonlyMap<string, Deed> {
    return this.#deeds;
  }
}

export function keyOf(call: { sessionId: string; callSequence: number }): string {
  return `${call.sessionId}/${call.callSequence}`;
}
