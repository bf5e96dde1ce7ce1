import { Worker } from "node:worker_threads";
import { JournalFileError } from "./journal-file-error.js";
import type { CheckpointReply, CommitReply, Operation, WriterOptions } from "./operation.js";
import { Writer } from "./writer.js";

/** The writer, wherever it runs. One request at a time. */
export interface WriterLink {
  /** Whether sessions waited for the removal of their rows when the file was opened. */
  readonly hadPurges: boolean;
  commit(operations: readonly Operation[], commitTimeMs: number): Promise<CommitReply>;
  checkpoint(): Promise<CheckpointReply>;
  close(): Promise<void>;
}

/** On the event loop: no hop, but every flush is waited for. */
export function openInlineWriter(options: WriterOptions): WriterLink {
  const writer = Writer.open(options);
  return {
    hadPurges: writer.hasPurges(),
    commit: (operations, commitTimeMs) => Promise.resolve(writer.commit(operations, commitTimeMs)),
    checkpoint: () => Promise.resolve(writer.checkpoint()),
    close: async () => writer.close(),
  };
}

export type WriterRequest =
  | { readonly type: "commit"; readonly operations: readonly Operation[]; readonly commitTimeMs: number }
  | { readonly type: "checkpoint" }
  | { readonly type: "close" };

export type WriterAnswer =
  | { readonly type: "opened"; readonly hadPurges: boolean }
  | { readonly type: "not_opened"; readonly code: string; readonly message: string }
  | { readonly type: "committed"; readonly reply: CommitReply }
  | { readonly type: "checkpointed"; readonly reply: CheckpointReply }
  | { readonly type: "closed" };

/** In a thread of its own: a hop each way, but a slow flush holds up nothing else. */
export async function openThreadWriter(options: WriterOptions): Promise<WriterLink> {
  const thread = new Worker(threadFile(), { workerData: options });
  let gone: Error | undefined;
  let waiting: { resolve(answer: WriterAnswer): void; reject(error: Error): void } | undefined;
  const lose = (error: Error): void => {
    gone ??= new JournalFileError(
      options.file,
      `the writer thread of the journal file ${options.file} is gone (${error.message}); start the server again, it goes on from what the file holds`,
    );
    waiting?.reject(gone);
    waiting = undefined;
  };
  thread.on("message", (answer: WriterAnswer) => {
    const asked = waiting;
    waiting = undefined;
    asked?.resolve(answer);
  });
  thread.on("error", lose);
  thread.on("exit", (code) => lose(new Error(`exit code ${code}`)));

  const nextAnswer = (): Promise<WriterAnswer> =>
    new Promise((resolve, reject) => {
      if (gone === undefined) waiting = { resolve, reject };
      else reject(gone);
    });
  const ask = (request: WriterRequest): Promise<WriterAnswer> => {
    const answer = nextAnswer();
    if (gone === undefined) thread.postMessage(request);
    return answer;
  };

  const opened = await nextAnswer();
  if (opened.type === "not_opened") {
    await thread.terminate();
    throw opened.code === ""
      ? new JournalFileError(options.file, opened.message)
      : Object.assign(new Error(opened.message), { code: opened.code });
  }
  return {
    hadPurges: opened.type === "opened" && opened.hadPurges,
    async commit(operations, commitTimeMs) {
      const answer = await ask({ type: "commit", operations, commitTimeMs });
      if (answer.type !== "committed") throw unexpected(answer);
      return answer.reply;
    },
    async checkpoint() {
      const answer = await ask({ type: "checkpoint" });
      if (answer.type !== "checkpointed") throw unexpected(answer);
      return answer.reply;
    },
    async close() {
      if (gone === undefined) await ask({ type: "close" });
      await thread.terminate();
    },
  };
}

function unexpected(answer: WriterAnswer): Error {
  return new Error(`the writer thread answered "${answer.type}" to another question`);
}

/** The thread runs plain JavaScript: from a source tree, what the build made of it. */
function threadFile(): URL {
  const built = import.meta.url.endsWith(".ts") ? "../../../dist/journal/sqlite/writer-thread.js" : "./writer-thread.js";
  return new URL(built, import.meta.url);
}
