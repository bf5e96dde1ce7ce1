import { closeSync, existsSync, fsyncSync, openSync, readSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import Database from "better-sqlite3";
import { unusableDirectory } from "./data-directory.js";
import { describeError, errorCode, isBusy, JournalFileError } from "./journal-file-error.js";
import { APPLICATION_ID, migrate, missingFromSchema } from "./migrate.js";
import { MIGRATIONS } from "./migrations/all.js";
import { belongTogether, formatSeal, newSeal, parseSeal, readSealOfFile, type Seal } from "./seal.js";

/**
 * Makes the journal file, or finds out whether the one that is there can be trusted, before anything writes to it.
 *
 * 1. A file that is refused is left as it is, byte for byte, and no other is started in its place.
 * 2. A new file appears under its name only when it is whole and on disk.
 * 3. A refusal is one plain line that names the file and says what to do.
 *
 * @throws JournalFileError; an error for which `isBusy` holds when somebody else is writing (try again).
 */
export function prepareJournalFile(file: string, quickCheckBytes: number): void {
  try {
    if (existsSync(file)) inspectJournalFile(file, quickCheckBytes);
    else createJournalFile(file);
  } catch (error) {
    if (error instanceof JournalFileError || isBusy(error)) throw error;
    const code = errorCode(error);
    if (code === "SQLITE_CORRUPT" || code.startsWith("SQLITE_CORRUPT_") || code === "SQLITE_NOTADB" || code === "SQLITE_ERROR") {
      throw damaged(file, describeError(error));
    }
    throw unusableDirectory(dirname(file), error);
  }
}

/** A message for a file that SQLite cannot make sense of. */
export function damaged(file: string, what: string): JournalFileError {
  return new JournalFileError(
    file,
    `the journal file ${file} is damaged (${what}); it was left as it is: restore it from a backup, or give another --data-dir`,
  );
}

function createJournalFile(file: string): void {
  const log = `${file}-wal`;
  if ((statSync(log, { throwIfNoEntry: false })?.size ?? 0) > 0) {
    throw new JournalFileError(
      file,
      `the journal file ${file} is missing but its log ${log} is there; put the file back, or move the log away to start empty`,
    );
  }
  const draft = `${file}.new`;
  for (const leftover of [draft, `${draft}-journal`, `${draft}-wal`, `${draft}-shm`]) rmSync(leftover, { force: true });
  closeSync(openSync(draft, "wx", 0o600));
  const db = new Database(draft, { timeout: 0 });
  try {
    db.pragma("synchronous = FULL");
    db.pragma(`application_id = ${APPLICATION_ID}`);
    migrate(db, file, MIGRATIONS);
    db.prepare("INSERT INTO seal (id, text) VALUES (1, ?)").run(formatSeal(newSeal()));
    db.pragma("journal_mode = WAL");
  } finally {
    db.close();
  }
  flush(draft);
  renameSync(draft, file);
  flush(dirname(file));
}

function inspectJournalFile(file: string, quickCheckBytes: number): void {
  refuseForeignFile(file);
  const seen = inspectContents(file, quickCheckBytes);
  // Read only now that no connection is open: see readSealOfFile.
  const inFile = readSealOfFile(file, seen.page, seen.pageSize);
  if (inFile !== undefined && !belongTogether(inFile, seen.seal)) {
    throw new JournalFileError(
      file,
      `the log ${file}-wal does not belong to the journal file ${file}; put back the log (or the file) it was written ` +
        "with, or move the log away if the file alone is what you want",
    );
  }
}

/** By the first 100 bytes, which SQLite does not see: it would try to recover what is no database. */
function refuseForeignFile(file: string): void {
  const header = Buffer.alloc(HEADER_BYTES);
  const descriptor = openSync(file, "r");
  let length: number;
  try {
    length = readSync(descriptor, header, 0, HEADER_BYTES, 0);
  } finally {
    closeSync(descriptor);
  }
  const isDatabase = length === HEADER_BYTES && header.toString("latin1", 0, 16) === "SQLite format 3\0";
  if (!isDatabase || header.readUInt32BE(APPLICATION_ID_OFFSET) !== APPLICATION_ID) {
    throw new JournalFileError(
      file,
      `the file ${file} is not a Brain journal${isDatabase ? " but another database" : ""}; it was left as it is: ` +
        "move it away, or give another --data-dir",
    );
  }
}

/** Through a connection that cannot write, log included. */
function inspectContents(file: string, quickCheckBytes: number): { seal: Seal; page: number; pageSize: number } {
  const db = new Database(file, { readonly: true, fileMustExist: true, timeout: 0 });
  try {
    db.pragma("cell_size_check = ON");
    const version = db.pragma("user_version", { simple: true }) as number;
    // Says no to a newer file before its schema is compared with ours.
    if (version > (MIGRATIONS.at(-1)?.version ?? 0)) migrate(db, file, MIGRATIONS);
    const missing = missingFromSchema(db, MIGRATIONS);
    if (missing.length > 0) throw damaged(file, `its schema lacks ${missing.slice(0, 3).join(", ")}`);
    const text = db.prepare("SELECT text FROM seal").pluck().get();
    const seal = typeof text === "string" ? parseSeal(text) : undefined;
    if (seal === undefined) throw damaged(file, "its seal cannot be read");
    const page = db.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'seal'").pluck().get() as number;
    const pageSize = db.pragma("page_size", { simple: true }) as number;
    if (statSync(file).size <= quickCheckBytes) {
      const verdict = db.pragma("quick_check(1)", { simple: true });
      if (verdict !== "ok") throw damaged(file, String(verdict).replaceAll(/\s+/g, " "));
    }
    return { seal, page, pageSize };
  } finally {
    db.close();
  }
}

function flush(path: string): void {
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

const HEADER_BYTES = 100;
const APPLICATION_ID_OFFSET = 68;
