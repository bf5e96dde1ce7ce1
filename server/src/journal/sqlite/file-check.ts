import { Worker } from "node:worker_threads";
import { damaged } from "./journal-file.js";
import type { JournalFileError } from "./journal-file-error.js";

/**
 * Reads a file through, in a thread and beside everything else, for damage that opening it does not meet: a start must
 * not take longer because the history is long. `onDamaged` is called at most once. Answers how to stop.
 */
export function checkFileInThread(file: string, onDamaged: (error: JournalFileError) => void): () => void {
  const built = import.meta.url.endsWith(".ts") ? "../../../dist/journal/sqlite/file-check-thread.js" : "./file-check-thread.js";
  const thread = new Worker(new URL(built, import.meta.url), { workerData: file });
  thread.unref();
  let stopped = false;
  thread.once("message", (verdict: string) => {
    if (!stopped && verdict !== "ok") onDamaged(damaged(file, verdict));
  });
  // A check that cannot be made says nothing about the file.
  thread.once("error", () => undefined);
  return () => {
    stopped = true;
    void thread.terminate();
  };
}
