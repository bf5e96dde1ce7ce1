import { describeError } from "./journal-file-error.js";
import type { JournalLog } from "./sqlite-journal.js";

/** Who wants to hear of the commits of which session. */
export class SessionWatchers {
  readonly #listeners = new Map<string, Set<() => void>>();
  readonly #log: JournalLog | undefined;

  constructor(log: JournalLog | undefined) {
    this.#log = log;
  }

  add(sessionId: string, listener: () => void): () => void {
    // A listener added twice is two listeners: each add has its own removal.
    const entry = (): void => listener();
    const listeners = this.#listeners.get(sessionId) ?? new Set();
    this.#listeners.set(sessionId, listeners.add(entry));
    return () => {
      if (listeners.delete(entry) && listeners.size === 0) this.#listeners.delete(sessionId);
    };
  }

  notify(sessionId: string): void {
    for (const listener of [...(this.#listeners.get(sessionId) ?? [])]) {
      try {
        listener();
      } catch (error) {
        this.#log?.warn({ session_id: sessionId, error: describeError(error) }, "a listener of a session's records threw");
      }
    }
  }
}
