import { Refusal } from "../core/refusal.js";
import { JournalError } from "../journal/port.js";

/** What an append that was not made means to whoever asked for it. */
export function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (!(error instanceof JournalError)) return new Refusal("internal", "the server met a bug; see its log");
  switch (error.failure) {
    case "journal_full":
      return new Refusal("journal_full", `${error.message}; nothing was sent; free space and ask again`);
    case "journal_unavailable":
    case "sequence_conflict":
      return new Refusal("journal_unavailable", `${error.message}; nothing was sent; ask again`);
    case "session_not_found":
      return new Refusal("session_not_found", error.message);
  }
}

/** Passes the value on, and a failed append as the refusal it means. */
export async function refusing<T>(made: Promise<T>): Promise<T> {
  try {
    return await made;
  } catch (error) {
    throw error instanceof JournalError ? refusalOf(error) : error;
  }
}
