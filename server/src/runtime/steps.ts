import { assert } from "../core/assert.js";
import type { Entry } from "../core/entry.js";
import type { Refusal } from "../core/refusal.js";
import { type Journal, JournalError } from "../journal/port.js";
import { refusalOf } from "./refusing.js";

/** One decision of a session: what it appends, and what happens when that is durable or could not be done. */
export interface Step {
  readonly entries: readonly Entry[];
  /** The effects; once the entries, and those of every earlier step, are durable. */
  perform(): void;
  /** Takes the decision back; called for the latest step first. */
  undo(): void;
  /** Tells whoever asked; called after everything is undone, for the earliest step first. */
  refuse(refusal: Refusal): void;
}

/**
 * The decisions of one session between being taken and being durable.
 *
 * 1. A step's entries take the sequences that follow those of the step before it, durable or not (L7, L8).
 * 2. Effects are performed in the order of the steps, each after its append and all before it are durable (L2).
 *    A step without entries waits for the ones before it.
 * 3. When an append fails, its step and all later ones are undone in reverse order and refused.
 */
export class Steps {
  readonly #sessionId: string;
  readonly #journal: Journal;
  readonly #onBug: (error: unknown) => void;
  #pending: { readonly step: Step; readonly at: number; durable: boolean; undone: boolean }[] = [];
  #next: number;
  #released = 0;

  constructor(session: { sessionId: string; next: number }, journal: Journal, onBug: (error: unknown) => void) {
    this.#sessionId = session.sessionId;
    this.#next = session.next;
    this.#journal = journal;
    this.#onBug = onBug;
  }

  /** The sequence that the next entry will have. */
  get next(): number {
    return this.#next;
  }

  /** Counts the steps that became durable: what was read from the journal before one did may be old. */
  get released(): number {
    return this.#released;
  }

  get idle(): boolean {
    return this.#pending.length === 0;
  }

  /** Takes a step that was decided when the next sequence was `at`; nothing may have been taken since. */
  take(step: Step, at = this.#next): void {
    assert(at === this.#next, "L8: a decision is taken against every earlier one");
    const taken = { step, at: this.#next, durable: step.entries.length === 0, undone: false };
    this.#pending.push(taken);
    if (taken.durable) {
      if (this.#pending[0] === taken) this.#release();
      return;
    }
    this.#next += step.entries.length;
    this.#journal.append(this.#sessionId, taken.at, step.entries).then(
      () => {
        taken.durable = true;
        this.#release();
      },
      (error: unknown) => {
        if (!taken.undone) this.#undoFrom(this.#pending.indexOf(taken), error);
      },
    );
  }

  /** Resolves when everything decided so far is durable. @throws Refusal when it was taken back */
  settled(): Promise<void> {
    return new Promise((resolve, reject) => this.take({ entries: [], perform: resolve, undo: () => undefined, refuse: reject }));
  }

  #release(): void {
    while (this.#pending[0]?.durable === true) {
      const taken = this.#pending.shift();
      this.#released++;
      try {
        taken?.step.perform();
      } catch (error) {
        this.#onBug(error);
      }
    }
  }

  #undoFrom(index: number, error: unknown): void {
    const undone = this.#pending.splice(index);
    this.#next = undone[0]?.at ?? this.#next;
    for (const taken of undone.toReversed()) {
      taken.undone = true;
      taken.step.undo();
    }
    const refusal = refusalOf(error);
    for (const { step } of undone) step.refuse(refusal);
    if (!(error instanceof JournalError)) this.#onBug(error);
  }
}
