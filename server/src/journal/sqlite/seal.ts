import { randomBytes } from "node:crypto";
import { closeSync, openSync, readSync } from "node:fs";

/**
 * The seal says which database a write-ahead log belongs to; SQLite itself takes any log that lies beside a file.
 *
 * 1. `generation` rises with every opening of the journal, and in the first transaction after every complete
 *    checkpoint: the only transaction with which SQLite may start its log anew.
 * 2. `base` is a generation that a complete checkpoint has brought into the database file.
 * 3. So whatever was interrupted, the generation in the file alone lies between `base` and `generation` as seen through
 *    the log. A log of another database, of an older copy or beside an older copy breaks this.
 * 4. The text has a fixed width: SQLite overwrites it in place, and its page never holds two of them.
 */
export interface Seal {
  readonly databaseId: string;
  readonly generation: number;
  readonly base: number;
}

const DIGITS = 12;
const PATTERN = /brain-journal ([0-9a-f]{32}) (\d{12}) (\d{12})/;

export function newSeal(): Seal {
  return { databaseId: randomBytes(16).toString("hex"), generation: 1, base: 1 };
}

export function formatSeal(seal: Seal): string {
  const digits = (count: number): string => String(count).padStart(DIGITS, "0");
  return `brain-journal ${seal.databaseId} ${digits(seal.generation)} ${digits(seal.base)}`;
}

/** The seal in a text (or in a page's bytes as latin1); undefined when there is none. */
export function parseSeal(text: string): Seal | undefined {
  const match = PATTERN.exec(text);
  if (match === null) return undefined;
  return { databaseId: match[1] ?? "", generation: Number(match[2]), base: Number(match[3]) };
}

/** Whether a file that holds `inFile` can be what lies under a log that shows `seen`. */
export function belongTogether(inFile: Seal, seen: Seal): boolean {
  return inFile.databaseId === seen.databaseId && inFile.generation >= seen.base && inFile.generation <= seen.generation;
}

/**
 * The seal as the database file alone has it, past any log. Undefined when the page cannot be read as one: a
 * checkpoint was cut off while it wrote the page, which the log still has.
 * Closes a descriptor of the file: no connection of this process may be open on it, it would lose its locks.
 */
export function readSealOfFile(file: string, page: number, pageSize: number): Seal | undefined {
  const bytes = Buffer.alloc(pageSize);
  const descriptor = openSync(file, "r");
  try {
    const length = readSync(descriptor, bytes, 0, pageSize, (page - 1) * pageSize);
    return parseSeal(bytes.toString("latin1", 0, length));
  } finally {
    closeSync(descriptor);
  }
}
