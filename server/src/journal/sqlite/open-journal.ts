import { statSync } from "node:fs";
import type { Clock } from "../../runtime/clock.js";
import type { Journal } from "../port.js";
import { openDataDirectory, unusableDirectory } from "./data-directory.js";
import { checkFileInThread } from "./file-check.js";
import { prepareJournalFile } from "./journal-file.js";
import { errorCode, isBusy, JournalFileError } from "./journal-file-error.js";
import { Reader } from "./reader.js";
import { type JournalLog, SqliteJournal, type SqliteJournalLimits } from "./sqlite-journal.js";
import { openInlineWriter, openThreadWriter } from "./writer-link.js";

export interface SqliteJournalOptions {
  /** The data directory; made with mode 0700 when it is not there. */
  readonly directory: string;
  readonly clock: Clock;
  readonly limits: SqliteJournalLimits;
  /** Where commits run: on the event loop, or in a thread for disks whose flush is slow. */
  readonly mode: "inline" | "thread";
  /**
   * Called once when it is not known what is on disk, or when another server has taken the journal: the process is to
   * end with this message, one plain line. The next start goes on from what the file holds.
   */
  readonly onFatal: (error: Error) => void;
  readonly log?: JournalLog;
  /** Most pages of 4 KiB the file may have; an append beyond is refused `journal_full`. */
  readonly maxPages?: number;
}

/**
 * Opens the journal of a data directory, which belongs to the caller until `close`.
 * @throws JournalFileError when the directory or the file cannot be used: one plain line that names it.
 */
export async function openSqliteJournal(options: SqliteJournalOptions): Promise<Journal> {
  const { clock, limits } = options;
  const directory = openDataDirectory(options.directory);
  const file = directory.journalFile;
  try {
    await whenFree(options, file, () => prepareJournalFile(file, limits.journalQuickCheckBytes));
    const writerOptions = {
      file,
      limits: {
        journalLogBytes: limits.journalLogBytes,
        journalLogFileBytes: limits.journalLogFileBytes,
        journalPurgeRows: limits.journalPurgeRows,
        journalPurgeBytes: limits.journalPurgeBytes,
      },
      ...(options.maxPages === undefined ? {} : { maxPages: options.maxPages }),
    };
    const openWriter = options.mode === "thread" ? openThreadWriter : openInlineWriter;
    const link = await whenFree(options, file, () => openWriter(writerOptions));
    const reader = new Reader(file, limits.journalCallPageBytes);
    const { onFatal, log } = options;
    const bytes = statSync(file).size;
    const checkedLater = bytes > limits.journalQuickCheckBytes && bytes <= limits.journalThreadCheckBytes;
    let stopChecking: () => void = () => undefined;
    if (checkedLater) {
      stopChecking = clock.after(limits.journalThreadCheckAfterMs, () => {
        stopChecking = checkFileInThread(file, onFatal);
      });
    }
    const release = (): void => {
      stopChecking();
      directory.release();
    };
    return new SqliteJournal({ file, link, reader, clock, limits, onFatal, log, release });
  } catch (error) {
    directory.release();
    if (error instanceof JournalFileError || errorCode(error) === "") throw error;
    throw unusableDirectory(options.directory, error);
  }
}

/** Tries until nobody else holds the file, for as long as an append would wait. */
async function whenFree<T>(options: SqliteJournalOptions, file: string, open: () => T | Promise<T>): Promise<T> {
  const { clock, limits } = options;
  const since = clock.monotonic();
  for (;;) {
    try {
      return await open();
    } catch (error) {
      if (!isBusy(error)) throw error;
      if (clock.monotonic() - since >= limits.journalLockWaitMs) {
        throw new JournalFileError(
          file,
          `the journal file ${file} has been held by another process for ${limits.journalLockWaitMs} ms; find out who holds it (fuser), then start again`,
        );
      }
    }
    await new Promise<void>((resolve) => clock.after(OPEN_RETRY_MS, resolve));
  }
}

const OPEN_RETRY_MS = 50;
