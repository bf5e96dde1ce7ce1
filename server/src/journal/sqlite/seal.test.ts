import { expect, test } from "vitest";
import { belongTogether, formatSeal, newSeal, parseSeal } from "./seal.js";

test("a seal has the same width whatever it counts, and is read back", () => {
  const first = newSeal();
  const later = { ...first, generation: 123_456_789_012, base: 123_456_789_011 };
  expect(formatSeal(later).length).toBe(formatSeal(first).length);
  expect(parseSeal(`\0\0${formatSeal(later)}\0`)).toEqual(later);
  expect(parseSeal("brain-journal")).toBeUndefined();
});

test("a file and a log belong together when the file's generation lies between the log's base and its generation", () => {
  const seal = { ...newSeal(), generation: 7, base: 5 };
  const inFile = (generation: number) => ({ ...seal, generation, base: 1 });
  expect([4, 5, 6, 7, 8].map((generation) => belongTogether(inFile(generation), seal))).toEqual([false, true, true, true, false]);
  expect(belongTogether({ ...inFile(6), databaseId: newSeal().databaseId }, seal)).toBe(false);
});
