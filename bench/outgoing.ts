/** What is to be written to a stream, in order. */
export class Outgoing<T> implements AsyncIterable<T> {
  #waiting: T[] = [];
  #wake: (() => void) | undefined;

  push(message: T): void {
    this.#waiting.push(message);
    this.#wake?.();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, never, undefined> {
    for (;;) {
      const batch = this.#waiting;
      this.#waiting = [];
      yield* batch;
      if (this.#waiting.length > 0) continue;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
  }
}
