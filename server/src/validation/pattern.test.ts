import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { linearPattern, nativePattern } from "./pattern.js";

const atom = fc.constantFrom(
  ..."a b c 0 _ - . \\. \\d \\D \\w \\W \\s \\S \\b \\B ^ $ [a-c] [^a] [\\d_-] [\\w.] [^\\s] [\\]a] [[:alpha:] [^\\n\\b] é \u{1f600} [à-ü] \\u00e9 \\x61 \\u{1f600} \\n \\r \\t \\v \\0 \\cA \\/ \\$ \\{ ".split(
    " ",
  ),
);
const quantifier = fc.constantFrom("", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,}", "{2,}", "*?", "+?", "??", "{1,2}?");
const { pattern } = fc.letrec<{ pattern: string; branch: string; term: string }>((tie) => ({
  pattern: fc.array(tie("branch"), { minLength: 1, maxLength: 3 }).map((branches) => branches.join("|")),
  branch: fc.array(tie("term"), { maxLength: 4 }).map((terms) => terms.join("")),
  term: fc.oneof(
    { weight: 4, arbitrary: fc.tuple(atom, quantifier).map(([a, q]) => (/^(\^|\$|\\b|\\B)$/i.test(a) ? a : a + q)) },
    {
      weight: 1,
      arbitrary: fc
        .tuple(fc.constantFrom("(", "(?:", "(?<name>"), tie("pattern"), quantifier)
        .map(([open, inner, q]) => `${open}${inner})${q}`),
    },
  ),
}));
const subject = fc.string({
  unit: fc.constantFrom(..."abcABC019_-. \t\n\r\v\f\u0000\u0001\b\u00a0\u2028\u2029\ufeffé[]:lph{}$/à\u{1f600}\u{1f601}"),
  maxLength: 8,
});

describe("linearPattern", () => {
  it("matches exactly what the native engine matches", () => {
    let translated = 0;
    fc.assert(
      fc.property(pattern, fc.array(subject, { minLength: 5, maxLength: 5 }), (source, subjects) => {
        const native = nativePattern(source);
        const linear = linearPattern(source);
        if (native === undefined || linear === undefined) return;
        translated++;
        for (const text of subjects) {
          expect({ source, text, matches: linear.matcher.test(text) }).toEqual({ source, text, matches: native.test(text) });
        }
      }),
      { numRuns: 3000 },
    );
    expect(translated).toBeGreaterThan(1000);
  });

  it.each([
    "(?=a)",
    "(?!a)b",
    "(?<=a)b",
    "(?<!a)b",
    "(a)\\1",
    "\\p{L}",
    "\\P{Lu}",
    "(?<n>a)\\k<n>",
    "[]",
    "[^]",
    "[\\S]",
    "\\B",
    "a{1000}",
    "(?:a{20}){30}",
  ])("declines %s", (source) => {
    expect(nativePattern(source)).toBeDefined();
    expect(linearPattern(source)).toBeUndefined();
  });

  it("answers at once where backtracking takes for ever", () => {
    const hostile: [string, string][] = [
      ["^(a+)+$", `${"a".repeat(50_000)}b`],
      ["^(?:a|a)*$", `${"a".repeat(50_000)}b`],
      ["(?:a|b)*a(?:a|b){20}c", "ab".repeat(25_000)],
      ["\\s+$", `${" ".repeat(50_000)}x`],
    ];
    for (const [source, text] of hostile) {
      const began = performance.now();
      expect(linearPattern(source)?.matcher.test(text)).toBe(false);
      expect(performance.now() - began).toBeLessThan(1000);
    }
  });
});

describe("nativePattern", () => {
  it("reads needless escapes as the character they escape", () => {
    expect(nativePattern("^https\\:\\/\\/")?.test("https://x")).toBe(true);
    expect(nativePattern("^https\\:\\/\\/")?.test("ftp://x")).toBe(false);
    expect(nativePattern("^[\\w\\-\\.\\@]+\\@x$")?.test("a-b.c@x")).toBe(true);
    expect(linearPattern("^https\\:\\/\\/")?.matcher.test("https://x")).toBe(true);
  });

  it("reads a pattern that only legacy syntax knows", () => {
    expect(nativePattern("^x{1\\,2}$")?.test("x{1,2}")).toBe(true);
    expect(linearPattern("^x{1\\,2}$")).toBeUndefined();
  });

  it.each(["^(?<a", "(", "[", "a**", "\\", "(?<n>a)(?<n>b)"])("has nothing for the broken pattern %s", (source) => {
    expect(nativePattern(source)).toBeUndefined();
    expect(linearPattern(source)).toBeUndefined();
  });
});
