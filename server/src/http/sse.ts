import type { Clock } from "../runtime/clock.js";
import type { HttpResponse } from "./exchange.js";

/**
 * A stream of server-sent events.
 *
 * 1. Headers and a first comment go out at once, so that nobody between waits for a first event.
 * 2. A comment goes out every `commentEveryMs`, so that nobody between takes silence for death. It is no event:
 *    it moves no cursor and is stored nowhere.
 * 3. It is never compressed, cached or changed on the way.
 * 4. What one reader is behind with is one event: `write` resolves when the socket takes more.
 */

export interface ServerSentEvent {
  readonly data: string;
  /** The event's name; absent for `message`. */
  readonly event?: string;
}

export interface EventStream {
  /** True when the reader can take more; false when it has left, or the stream was closed, and nothing more is sent. */
  write(event: ServerSentEvent): Promise<boolean>;
  /** Ends the response. Harmless when it has ended. */
  close(): void;
}

export interface EventStreamOptions {
  readonly commentEveryMs: number;
  readonly clock: Clock;
}

export function openEventStream(res: HttpResponse, { commentEveryMs, clock }: EventStreamOptions): EventStream {
  let open = !res.destroyed && !res.writableEnded;
  let disarm = (): void => {};
  res.once("close", () => {
    open = false;
    disarm();
  });
  if (open) {
    res.writeHead(200, {
      "Content-Type": "text/event-stream; charset=utf-8",
      "Cache-Control": "no-cache, no-transform",
      "X-Accel-Buffering": "no",
    });
    res.write(": this stream is open\n\n");
    const comment = (): void => {
      // A reader that is behind has bytes on their way already.
      if (open && !res.writableNeedDrain) res.write(":\n\n");
      disarm = clock.after(commentEveryMs, comment);
    };
    disarm = clock.after(commentEveryMs, comment);
  }

  return {
    write(event) {
      if (!open) return Promise.resolve(false);
      if (res.write(format(event))) return Promise.resolve(true);
      return new Promise((resolve) => {
        const settle = (): void => {
          res.off("drain", settle);
          res.off("close", settle);
          resolve(open);
        };
        res.on("drain", settle);
        // The listener above runs first, so `open` is false by then.
        res.on("close", settle);
      });
    },
    close() {
      if (!open) return;
      open = false;
      disarm();
      res.end();
    },
  };
}

function format({ event, data }: ServerSentEvent): string {
  const name = event === undefined ? "" : `event: ${event}\n`;
  // Every kind of line end would end the field; a reader joins the lines again with \n.
  return `${name}${data
    .split(/\r\n|\r|\n/)
    .map((line) => `data: ${line}\n`)
    .join("")}\n`;
}
