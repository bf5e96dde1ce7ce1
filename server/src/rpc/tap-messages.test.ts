import { expect, test } from "vitest";
import { tapMessages } from "./tap-messages.js";

function tapped(messages: AsyncIterable<number>): { messages: AsyncIterable<number>; heard: string[] } {
  const heard: string[] = [];
  const taps = {
    ended: () => void heard.push("ended"),
    failed: (error: unknown) => {
      heard.push(`failed ${String(error)}`);
      return `mapped ${String(error)}`;
    },
  };
  return { messages: tapMessages(messages, taps), heard };
}

async function* count(to: number, error?: string): AsyncGenerator<number> {
  for (let n = 1; n <= to; n += 1) yield n;
  if (error !== undefined) throw error;
}

async function collect(messages: AsyncIterable<number>): Promise<(number | string)[]> {
  const seen: (number | string)[] = [];
  try {
    for await (const message of messages) seen.push(message);
  } catch (error) {
    seen.push(String(error));
  }
  return seen;
}

test("messages pass unchanged, and their end is told once", async () => {
  const { messages, heard } = tapped(count(3));
  expect(await collect(messages)).toEqual([1, 2, 3]);
  expect(heard).toEqual(["ended"]);
});

test("an error is replaced, and told once", async () => {
  const { messages, heard } = tapped(count(2, "e"));
  expect(await collect(messages)).toEqual([1, 2, "mapped e"]);
  expect(heard).toEqual(["failed e"]);
});

test("a reader that leaves ends the stream behind, and is told once", async () => {
  let cleaned = false;
  const { messages, heard } = tapped(
    (async function* () {
      try {
        yield* count(9);
      } finally {
        cleaned = true;
      }
    })(),
  );
  for await (const message of messages) if (message === 2) break;
  expect(cleaned).toBe(true);
  expect(heard).toEqual(["ended"]);
});

test("an error that the reader throws in is the reader's leaving, one that comes of it is the stream's", async () => {
  const left = tapped(count(9));
  const reader = left.messages[Symbol.asyncIterator]();
  await reader.next();
  await expect(reader.throw?.("write failed")).rejects.toBe("write failed");
  expect(left.heard).toEqual(["ended"]);

  const failing = tapped(
    (async function* () {
      try {
        yield 1;
      } catch {
        throw "cleanup failed";
      }
    })(),
  );
  const other = failing.messages[Symbol.asyncIterator]();
  await other.next();
  await expect(other.throw?.("write failed")).rejects.toBe("mapped cleanup failed");
  expect(failing.heard).toEqual(["failed cleanup failed"]);
});

test("a stream that cannot be left or thrown into can be all the same", async () => {
  const bare = { [Symbol.asyncIterator]: () => ({ next: () => Promise.resolve({ done: false as const, value: 1 }) }) };
  const { messages, heard } = tapped(bare);
  const reader = messages[Symbol.asyncIterator]();
  expect(await reader.return?.()).toEqual({ done: true, value: undefined });
  await expect(reader.throw?.("e")).rejects.toBe("e");
  expect(heard).toEqual(["ended"]);
});
