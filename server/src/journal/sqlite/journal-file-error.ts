/** The journal cannot be opened, or not be trusted any more. `message` is one plain line that names the file. */
export class JournalFileError extends Error {
  readonly file: string;
  constructor(file: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "JournalFileError";
    this.file = file;
  }
}

/** The code of an error of SQLite or of the system; empty for any other error. */
export function errorCode(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
}

/** Somebody else holds the database just now; nothing was done. */
export function isBusy(error: unknown): boolean {
  const code = errorCode(error);
  return code.startsWith("SQLITE_BUSY") || code === "SQLITE_PROTOCOL";
}

/** `SQLITE_CORRUPT: database disk image is malformed`: for the end of a message. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = errorCode(error);
  return code === "" || error.message.includes(code) ? error.message : `${code}: ${error.message}`;
}
