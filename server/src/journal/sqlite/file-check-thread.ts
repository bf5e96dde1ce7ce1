import { parentPort, workerData } from "node:worker_threads";
import Database from "better-sqlite3";
import { describeError, errorCode } from "./journal-file-error.js";

// The whole of the checking thread: one question to SQLite, through a connection that cannot write.
const db = new Database(String(workerData), { readonly: true, fileMustExist: true, timeout: 0 });
try {
  const verdict = String(db.pragma("quick_check(1)", { simple: true }));
  parentPort?.postMessage(verdict === "ok" ? verdict : verdict.replaceAll(/\s+/g, " "));
} catch (error) {
  if (errorCode(error).startsWith("SQLITE_CORRUPT")) parentPort?.postMessage(describeError(error));
} finally {
  db.close();
}
