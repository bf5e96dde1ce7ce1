import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { checkKey, checkName, NAME_PATTERN, quote } from "./names.js";
import { Refusal } from "./refusal.js";

function refusal(make: () => unknown): Refusal {
  try {
    make();
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

describe("a name", () => {
  it("is 1 to 64 of A-Z a-z 0-9 _ - and is kept as it is", () => {
    fc.assert(
      fc.property(fc.stringMatching(NAME_PATTERN), (name) => {
        expect(checkName("name", name)).toBe(name);
      }),
    );
    for (const word of ["__proto__", "constructor", "-", "_", "7", "x".repeat(64)]) expect(checkName("name", word)).toBe(word);
  });

  it.each([
    "",
    " ",
    "a.b",
    "a/b",
    "../x",
    "é",
    "e\u0301",
    "ａ",
    "x".repeat(65),
    "x".repeat(300),
    "a\u0000b",
    "a\n",
    "\na",
    "a\u2028",
    "😀",
  ])("is not %j: refused with the field, the name and the rule", (name) => {
    const { reason, message, metadata } = refusal(() => checkName("tools[3].tool.name", name));
    expect(reason).toBe("invalid_argument");
    expect(metadata).toEqual({ field: "tools[3].tool.name" });
    expect(message).toBe(`tools[3].tool.name: ${quote(name)} is not a name; use 1 to 64 of A-Z a-z 0-9 _ -`);
  });
});

describe("a key", () => {
  it.each(["a", " ", "0191-uuid", "turn 7 / call é 😀", "__proto__", "x".repeat(256)])("may be %j", (key) => {
    expect(checkKey("call_id", key)).toBe(key);
  });

  it.each([
    ["", "call_id: is empty; it must be 1 to 256 characters"],
    ["x".repeat(257), "call_id: is 257 characters; at most 256 are allowed"],
    ["a\u0000", "call_id: has a control character; remove it"],
    ["a\nb", "call_id: has a control character; remove it"],
    ["\u001b[31m", "call_id: has a control character; remove it"],
    ["\u007f", "call_id: has a control character; remove it"],
  ])("may not be %j", (key, message) => {
    expect(refusal(() => checkKey("call_id", key))).toMatchObject({ reason: "invalid_argument", message, metadata: { field: "call_id" } });
  });
});

describe("a quoted text", () => {
  it("is one line without control characters, of bounded length, whatever the text is", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 400 }), (text) => {
        const quoted = quote(text);
        // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
        expect(quoted).toMatch(/^"[^\u0000-\u001f]*"$/u);
        expect(quoted.length).toBeLessThanOrEqual(2 + 6 * 80 + 3);
        expect(quoted.isWellFormed()).toBe(true);
      }),
    );
  });

  it("shows up to 80 characters whole, and says when there are more", () => {
    expect(quote("x".repeat(80))).toBe(`"${"x".repeat(80)}"`);
    expect(quote("x".repeat(81))).toBe(`"${"x".repeat(80)}..."`);
  });
});
