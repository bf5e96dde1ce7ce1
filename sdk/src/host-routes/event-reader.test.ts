import { describe, expect, test } from "vitest";
import { EventReader } from "./event-reader.js";

function read(stream: string | Uint8Array, chunkBytes: number): string[] {
  const events: string[] = [];
  const reader = new EventReader((data) => events.push(data));
  const bytes = typeof stream === "string" ? Buffer.from(stream) : stream;
  for (let at = 0; at < bytes.length; at += chunkBytes) reader.feed(bytes.subarray(at, at + chunkBytes));
  return events;
}

describe.each([1, 2, 3, 1_000])("in chunks of %i bytes", (chunkBytes) => {
  test.each([
    ["LF", "data: 1\n\ndata: 2\n\n"],
    ["CRLF", "data: 1\r\n\r\ndata: 2\r\n\r\n"],
    ["bare CR", "data: 1\r\rdata: 2\r\r"],
    ["all of them", "data: 1\r\n\ndata: 2\r\r\n"],
    ["no blank after the colon", "data:1\n\ndata:2\n\n"],
    ["comments and other fields", ": hello\n\nid: 7\nretry: soon\nevent: x\ndata: 1\nodd: y\n\n:\ndata: 2\n\n"],
    ["a byte order mark", "\ufeffdata: 1\n\ndata: 2\n\n"],
    ["an unfinished last event", "data: 1\n\ndata: 2\n\ndata: 3\n"],
    ["an unfinished last line", "data: 1\n\ndata: 2\n\ndata: 3"],
  ])("every finished event is read once, with %s", (_, stream) => {
    expect(read(stream, chunkBytes)).toEqual(["1", "2"]);
  });

  test("an event is handed over with its empty line, even a bare CR", () => {
    expect(read("data: 1\r\r", chunkBytes)).toEqual(["1"]);
  });

  test("two data lines are one value with a line break, and characters are not broken", () => {
    expect(read('data: {"s":\ndata: "😀"}\n\n', chunkBytes)).toEqual(['{"s":\n"😀"}']);
  });
});

test("an event without end is an error, not a full memory", () => {
  const reader = new EventReader(() => undefined);
  const chunk = Buffer.alloc(1024 * 1024, "x");
  expect(() => {
    for (let count = 0; count < 20; count++) reader.feed(chunk);
  }).toThrow("max buffer size");
});
