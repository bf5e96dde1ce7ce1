export interface MessageTaps {
  /** What to throw in place of an error of the stream. */
  readonly failed: (error: unknown) => unknown;
  /** The stream ended without an error, or its reader left it. Called at most once, and never after `failed`. */
  readonly ended?: () => void;
}

/**
 * The same messages, with somebody told how they end. Written as a plain iterator because every message of every
 * stream passes through it: an async generator would add three turns of the event loop's queue to each.
 */
export function tapMessages<T>(messages: AsyncIterable<T>, taps: MessageTaps): AsyncIterable<T> {
  return {
    [Symbol.asyncIterator](): AsyncIterator<T, undefined> {
      const inner = messages[Symbol.asyncIterator]();
      let over = false;
      const end = (): void => {
        if (!over) taps.ended?.();
        over = true;
      };
      const fail = (error: unknown): never => {
        if (over) throw error;
        over = true;
        throw taps.failed(error);
      };
      const pass = (step: IteratorResult<T>): IteratorResult<T, undefined> => {
        if (step.done !== true) return step;
        end();
        return { done: true, value: undefined };
      };
      return {
        next: () => inner.next().then(pass, fail),
        return: async () => {
          end();
          await inner.return?.();
          return { done: true, value: undefined };
        },
        // How the wire says that it cannot take more: unless the messages make something else of it, their reader has left.
        throw: (error: unknown) =>
          (inner.throw === undefined ? Promise.reject(error) : inner.throw(error)).then(pass, (thrown: unknown) => {
            if (thrown !== error) return fail(thrown);
            end();
            throw error;
          }),
      };
    },
  };
}
