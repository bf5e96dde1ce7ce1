import type { Record as JournalRecord } from "@aexhq/brain-proto";

/** What a record says, without its place: one case of `Record.entry`. */
export type Entry = Exclude<JournalRecord["entry"], { case: undefined }>;

/** An entry with the sequence it has, or will have, in its session. */
export interface PlacedEntry {
  readonly sequence: number;
  readonly entry: Entry;
}
