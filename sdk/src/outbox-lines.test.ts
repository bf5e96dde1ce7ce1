import { describe, expect, test } from "vitest";
import { answeredLine, entryLine, FIRST_LINE, type OutboxEntry, readOutbox } from "./outbox-lines.js";
import { outcome, outcomeFromWire, wireFailure, wireOk } from "./outcome.js";

const entry = (callSequence: number, value: unknown = { n: callSequence }): OutboxEntry => ({
  hostId: "a-host",
  sessionId: "a-session",
  callSequence,
  tool: "lookup",
  outcome: wireOk(JSON.stringify(value)),
});
const file = (...lines: readonly Buffer[]): Buffer => Buffer.concat([Buffer.from(FIRST_LINE), ...lines]);
const sequences = (bytes: Buffer): number[] => readOutbox(bytes).entries.map(({ callSequence }) => callSequence);

describe("an outbox", () => {
  test("gives back every kind of outcome as it was, in order", () => {
    const odd = { "a\u0000b": "line\nbreak\r\n", __proto__: null, emoji: "😀", n: 5e-324 };
    const failure = { code: "told_so", message: "zwölf\n", retryable: true, detailsJson: '{"a":1}' };
    const entries = [
      entry(2, odd),
      { ...entry(4), outcome: wireFailure("error", failure) },
      { ...entry(6), outcome: wireFailure("timeout", { code: "deadline_passed", message: "" }) },
      { ...entry(8), outcome: wireFailure("cancelled", { code: "c", message: "m" }) },
      { ...entry(10), outcome: wireFailure("unknown", { code: "u", message: "m" }) },
    ];
    const read = readOutbox(file(...entries.map(entryLine)));
    expect(read).toMatchObject({ isOutbox: true, tornBytes: 0, damagedLines: 0 });
    expect(read.entries).toEqual(entries);
    expect(outcomeFromWire(read.entries[1]?.outcome)).toEqual(outcome.error({ ...failure, details: { a: 1 } }));
  });

  test("forgets what was answered, of that session only", () => {
    const other = { ...entry(2), sessionId: "another" };
    const bytes = file(entryLine(entry(2)), entryLine(other), entryLine(entry(4)), answeredLine(entry(2)));
    expect(readOutbox(bytes).entries).toEqual([other, entry(4)]);
  });

  test("cut anywhere has every line before the cut, and only says so", () => {
    const lines = [entryLine(entry(2)), entryLine(entry(4)), answeredLine(entry(2)), entryLine(entry(6))];
    const whole = file(...lines);
    const ends = lines.map((_, count) => file(...lines.slice(0, count + 1)).length);
    for (let length = 0; length <= whole.length; length++) {
      const read = readOutbox(whole.subarray(0, length));
      // A line that lacks nothing but its end is whole.
      const lineCount = ends.filter((end) => end - 1 <= length).length;
      expect([length, read.entries]).toEqual([length, readOutbox(file(...lines.slice(0, lineCount))).entries]);
      expect([length, read.isOutbox, read.damagedLines]).toEqual([length, true, 0]);
      const isWhole = length === 0 || length === FIRST_LINE.length || ends.some((end) => end === length || end - 1 === length);
      expect([length, read.tornBytes > 0]).toEqual([length, !isWhole]);
    }
  });

  test("with any one byte changed has every other line, and counts the damage", () => {
    const lines = [entryLine(entry(2)), entryLine(entry(4)), entryLine(entry(6))];
    const whole = file(...lines);
    for (let at = 0; at < whole.length; at++) {
      for (const bits of [0x01, 0x20, 0xff]) {
        const bytes = Buffer.from(whole);
        bytes[at] = (bytes[at] ?? 0) ^ bits;
        const read = readOutbox(bytes);
        expect([at, bits, read.isOutbox]).toEqual([at, bits, true]);
        expect(read.damagedLines + read.tornBytes, `damage at ${at}`).toBeGreaterThan(0);
        const found = read.entries.map(({ callSequence }) => callSequence);
        // The end of a line, once changed, takes the next line with it.
        expect(found.length, `entries with damage at ${at}`).toBeGreaterThanOrEqual(bytes.includes(0x0a, at) && whole[at] === 0x0a ? 1 : 2);
        expect([2, 4, 6]).toEqual(expect.arrayContaining(found));
        for (const one of read.entries) expect(one).toEqual(entry(one.callSequence));
      }
    }
  });

  test("with a hole of zeros, or a piece missing, has what lies around it", () => {
    const lines = [2, 4, 6, 8].map((sequence) => entryLine(entry(sequence, "x".repeat(5_000))));
    const whole = file(...lines);
    const hole = Buffer.from(whole).fill(0, 6_000, 9_000);
    expect(sequences(hole)).toEqual([2, 6, 8]);
    expect(sequences(Buffer.concat([whole.subarray(0, 6_000), whole.subarray(9_000)]))).toEqual([2, 6, 8]);
    expect(sequences(whole.subarray(3_000))).toEqual([4, 6, 8]);
    expect(readOutbox(whole.subarray(3_000))).toMatchObject({ isOutbox: true, damagedLines: 1 });
  });
});

test.each([
  ["a program", "#!/bin/sh\necho hello\n"],
  ["JSON", '{"name":"package"}\n'],
  ["zeros", "\0".repeat(100)],
  ["one letter", "x"],
])("a file of %s is no outbox", (_, text) => {
  expect(readOutbox(Buffer.from(text))).toMatchObject({ isOutbox: false, entries: [] });
});

test("a line whose checksum holds and whose content is nothing known is damage", () => {
  const strange = answeredLine({ sessionId: 7, callSequence: "x" } as never);
  expect(readOutbox(file(strange, entryLine(entry(2))))).toMatchObject({ damagedLines: 1, entries: [entry(2)] });
});
