/**
 * The bytes of a server-sent event stream, read into the `data` of its events.
 *
 * 1. Chunks may be cut anywhere: inside a character, between CR and LF, inside a field.
 * 2. An event is handed over as soon as its empty line has come, whatever ends the lines, and never before.
 */
import { createParser } from "eventsource-parser";

/** Far above the largest command Brain sends; what grows past it is no command stream. */
const EVENT_MAX_LENGTH = 8 * 1024 * 1024;

export class EventReader {
  readonly #decoder = new TextDecoder();
  readonly #parser;
  #endedWithReturn = false;

  /** Throws whatever `take` throws, out of `feed`. */
  constructor(take: (data: string) => void) {
    this.#parser = createParser({
      maxBufferSize: EVENT_MAX_LENGTH,
      onEvent: ({ data }) => take(data),
      onError: (error) => {
        // Unknown fields and odd retry values are to be ignored; only an endless event is an error.
        if (error.type === "max-buffer-size-exceeded") throw error;
      },
    });
  }

  feed(chunk: Uint8Array): void {
    let text = this.#decoder.decode(chunk, { stream: true });
    if (text === "") return;
    // The parser holds a final CR back until it knows what follows; here it ends its line at once.
    if (this.#endedWithReturn && text.startsWith("\n")) text = text.slice(1);
    this.#endedWithReturn = text.endsWith("\r");
    if (text !== "") this.#parser.feed(text.replaceAll(/\r\n?/g, "\n"));
  }
}
