import { mkdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import Database from "better-sqlite3";
import { describeError, errorCode, isBusy, JournalFileError } from "./journal-file-error.js";

/**
 * A data directory belongs to one server at a time.
 *
 * The lock is a lock of the kernel, which SQLite holds on an empty file of its own: it goes with the process, however
 * that ends, and says nothing about a process that is no more.
 */
export interface DataDirectory {
  readonly journalFile: string;
  release(): void;
}

/** @throws JournalFileError when another server holds it, or it cannot be made or written. */
export function openDataDirectory(directory: string): DataDirectory {
  const lockFile = join(directory, "lock.sqlite3");
  let lock: Database.Database | undefined;
  try {
    makeDirectory(directory);
    lock = new Database(lockFile, { timeout: 0 });
    lock.exec("BEGIN EXCLUSIVE");
    const held = lock;
    return { journalFile: join(directory, "journal.sqlite3"), release: () => void held.close() };
  } catch (error) {
    lock?.close();
    if (isBusy(error)) {
      throw new JournalFileError(
        directory,
        `the data directory ${directory} is in use by another Brain server; stop that one, or give this one another --data-dir`,
      );
    }
    throw unusableDirectory(directory, error);
  }
}

/**
 * Makes the directory and what is missing above it, for this user alone; one that exists keeps the mode its owner
 * chose. Node's own recursive mkdir never returns where a file system takes no directories at all (`/proc`).
 */
function makeDirectory(directory: string): void {
  if (statSync(directory, { throwIfNoEntry: false })?.isDirectory() === true) return;
  const parent = dirname(directory);
  if (parent !== directory) makeDirectory(parent);
  mkdirSync(directory, { mode: 0o700 });
}

/** A message for an error that says the directory cannot hold a journal. */
export function unusableDirectory(directory: string, error: unknown): JournalFileError {
  const code = errorCode(error);
  const reason =
    code.startsWith("SQLITE_READONLY") || code === "SQLITE_CANTOPEN" || code === "EACCES" || code === "EROFS" || code === "EPERM"
      ? "cannot be written"
      : "cannot be used";
  return new JournalFileError(
    directory,
    `the data directory ${directory} ${reason} (${describeError(error)}); make it writable for this user, or give another --data-dir`,
    { cause: error },
  );
}
