import type { Random } from "./random.js";

const SHORTEST_MS = 0.001;

interface Due {
  readonly at: number;
  /** What is due at the same moment happens in an order that chance decides. */
  readonly tie: number;
  readonly order: number;
  readonly run: () => void;
  called: boolean;
}

/**
 * Virtual time: everything that happens stands in one queue.
 *
 * 1. Between two happenings the event loop comes to rest, so that all that follows from one precedes the next.
 * 2. Nothing here depends on real time; with the same chance the same happens.
 */
export class Schedule {
  readonly #random: Random;
  readonly #rest: () => Promise<void>;
  readonly #heap: Due[] = [];
  #now = 0;
  #order = 0;

  /** `rest` lets everything that follows from a happening happen; one turn of the event loop, where nothing needs more. */
  constructor(random: Random, rest: () => Promise<void> = turnOfTheLoop) {
    this.#random = random;
    this.#rest = rest;
  }

  /** Milliseconds since the beginning. */
  get now(): number {
    return this.#now;
  }

  /** How much has happened. */
  happened = 0;

  /** Runs `run` once, `delayMs` from now at the earliest in a later step. Returns the way to call it off. */
  after(delayMs: number, run: () => void): () => void {
    // A wait so short that the sum does not show it would never be over.
    const wait = delayMs <= 0 ? 0 : Math.max(delayMs, SHORTEST_MS);
    const due = { at: this.#now + wait, tie: this.#random.next(), order: this.#order++, run, called: false };
    this.#push(due);
    return () => {
      due.called = true;
    };
  }

  /** Lets things happen until `done`, or until `untilMs` on the virtual clock; false when it was the latter or nothing is left. */
  async runUntil(done: () => boolean, untilMs: number): Promise<boolean> {
    await this.#rest();
    while (!done()) {
      const due = this.#pop();
      if (due === undefined) return false;
      if (due.called) continue;
      if (due.at > untilMs) {
        this.#push(due);
        return false;
      }
      this.#now = due.at;
      due.called = true;
      this.happened++;
      due.run();
      await this.#rest();
    }
    return true;
  }

  #push(due: Due): void {
    const heap = this.#heap;
    let at = heap.push(due) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || !before(due, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = due;
  }

  #pop(): Due | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      const [left, right] = [heap[child], heap[child + 1]];
      if (left === undefined) break;
      let least = left;
      if (right !== undefined && before(right, left)) {
        least = right;
        child++;
      }
      if (!before(least, last)) break;
      heap[at] = least;
      at = child;
    }
    heap[at] = last;
    return first;
  }
}

function before(left: Due, right: Due): boolean {
  if (left.at !== right.at) return left.at < right.at;
  if (left.tie !== right.tie) return left.tie < right.tie;
  return left.order < right.order;
}

/** Every promise that can settle has settled when this resolves; what was put off to the next turn comes in it. */
export function turnOfTheLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
