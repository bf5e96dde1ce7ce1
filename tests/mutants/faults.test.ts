import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { planted } from "./fault.js";
import { FAULTS } from "./faults.js";

const root = new URL("../..", import.meta.url).pathname;

describe("every planted fault", () => {
  test.each(FAULTS)("$name has a place in the sources as they are, and changes them", ({ edits }) => {
    const texts = new Map<string, string>();
    for (const edit of edits) {
      const text = texts.get(edit.file) ?? readFileSync(join(root, edit.file), "utf8");
      texts.set(edit.file, planted(text, edit));
      expect(texts.get(edit.file)).not.toBe(text);
    }
    expect(texts.size).toBeGreaterThan(0);
  });

  test.each(FAULTS)("$name is in no test or in what a test needs, and names a suite that is there", ({ edits, suite }) => {
    for (const { file } of edits) {
      expect(file).toMatch(/^(?:server|sdk)\/src\//);
      expect(file).not.toMatch(/\.test\.ts$/);
    }
    expect(existsSync(join(root, suite.file))).toBe(true);
  });

  test("has a name of its own", () => {
    expect(new Set(FAULTS.map(({ name }) => name)).size).toBe(FAULTS.length);
  });
});

describe("planting", () => {
  test("puts the new text in the place of the old as it is written", () => {
    expect(planted("a = 1;", { file: "x.ts", find: "1", plant: "$&$1" })).toBe("a = $&$1;");
  });

  test.each([
    ["nowhere", "c", "has 0 places"],
    ["twice", "a", "has 2 places"],
    ["everywhere", "", "not one"],
  ])("of what is there %s is refused, naming the file and what was looked for", (_, find, message) => {
    const plant = (): string => planted("a b a", { file: "x.ts", find, plant: "z" });
    expect(plant).toThrow(`x.ts has`);
    expect(plant).toThrow(message);
    expect(plant).toThrow(JSON.stringify(find));
  });
});
