import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalJson, cutToBytes, deepFreeze, jsonPointer, toJsonText } from "./json.js";

function text(value: unknown, maxBytes?: number): string {
  const written = toJsonText(value, maxBytes);
  return written.ok ? written.text : `refused at "${written.path}": ${written.problem}`;
}

describe("a value becomes JSON text", () => {
  test("as JSON.stringify writes it, for every JSON value", () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
        const written = toJsonText(value);
        // fast-check makes integers beyond 2^53 and lone surrogates as well; those have tests of their own.
        if (written.ok) expect(written.text).toBe(JSON.stringify(value));
        else expect(written.problem).toMatch(/beyond|surrogate/);
      }),
    );
  });

  test("with undefined members absent, and undefined elsewhere null", () => {
    expect(text({ a: 1, b: undefined })).toBe('{"a":1}');
    expect(text([undefined, 1])).toBe("[null,1]");
    expect(text(undefined)).toBe("null");
  });

  test("through toJSON, as a Date does it", () => {
    expect(text({ at: new Date(0) })).toBe('{"at":"1970-01-01T00:00:00.000Z"}');
    expect(text({ toJSON: (key: string) => `key ${key}` })).toBe('"key "');
  });

  test("with NUL, astral characters and __proto__ as they are", () => {
    expect(text("a\u0000b😀")).toBe(JSON.stringify("a\u0000b😀"));
    expect(text(JSON.parse('{"__proto__":1}'))).toBe('{"__proto__":1}');
  });

  test("with -0 as 0, and boxed values unboxed", () => {
    expect(text([-0, Object(1), Object("x")])).toBe('[0,1,"x"]');
  });

  test("for a part that is shared, each time it occurs", () => {
    const shared = { x: 1 };
    expect(text([shared, shared])).toBe('[{"x":1},{"x":1}]');
  });
});

describe("a value without an exact JSON form is refused at its place", () => {
  const itself: Record<string, unknown> = {};
  itself["me"] = { me: itself };
  const cases: [string, unknown, string][] = [
    ["NaN", { n: Number.NaN }, "/n"],
    ["Infinity", [1, Number.POSITIVE_INFINITY], "/1"],
    ["a bigint", { n: 10n }, "/n"],
    ["a function", { f: () => 1 }, "/f"],
    ["a symbol", Symbol("s"), ""],
    ["a Map", { "a/b~c": new Map() }, "/a~1b~0c"],
    ["a Promise", [Promise.resolve()], "/0"],
    ["an Error", new Error("x"), ""],
    ["bytes", { b: new Uint8Array(1) }, "/b"],
    ["a lone surrogate", { s: "x\ud800y" }, "/s"],
    ["a lone surrogate in a name", { "\ud800": 1 }, "/\ud800"],
    ["an integer beyond 2^53", { n: 2 ** 53 }, "/n"],
    ["an integer literal of 21 digits", 1e20, ""],
    ["a value that holds itself", itself, "/me/me"],
  ];
  test.each(cases)("%s", (_, value, path) => {
    expect(toJsonText(value)).toMatchObject({ ok: false, path });
  });

  test("numbers that are written with an exponent pass", () => {
    expect(text([1e308, 5e-324, 1e21, 2 ** 53 - 1, 1.5])).toBe("[1e+308,5e-324,1e+21,9007199254740991,1.5]");
  });

  test("nesting of 512 passes and one more is refused", () => {
    const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);
    expect(text(nested(512))).toMatch(/^\[+1\]+$/);
    expect(text(nested(513))).toContain("deeper than 512");
  });

  test("the budget counts UTF-8 bytes, exactly", () => {
    expect(text("é".repeat(4), 10)).toBe('"éééé"');
    expect(text("é".repeat(5), 11)).toContain("longer than 11 bytes");
  });

  test("a small value that shares itself into a huge one stops at the budget", () => {
    let value: unknown = [1];
    for (let level = 0; level < 100; level++) value = [value, value];
    expect(text(value)).toContain("longer than");
  });

  test("what a getter throws comes through", () => {
    const value = {
      get bad(): number {
        throw new Error("no");
      },
    };
    expect(() => toJsonText(value)).toThrow("no");
  });
});

test("canonical text sorts members by UTF-16 units and writes numbers as RFC 8785 says", () => {
  const value = JSON.parse('{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"b":1,"a":{"d":1,"c":2}}');
  expect(canonicalJson(value)).toBe('{"a":{"c":2,"d":1},"b":1,"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27]}');
  const names = JSON.parse('{"\\u20ac":1,"\\r":2,"\\ufb33":3,"1":4,"\\ud83d\\ude00":5,"\\u0080":6,"\\u00f6":7}');
  expect(Object.values(JSON.parse(canonicalJson(names)))).toHaveLength(7);
  expect(canonicalJson(names)).toBe('{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"😀":5,"\ufb33":3}');
});

test("a text is cut between characters, and made well-formed", () => {
  expect(cutToBytes("aé😀", 2)).toBe("a");
  expect(cutToBytes("aé😀", 3)).toBe("aé");
  expect(cutToBytes("aé😀", 6)).toBe("aé");
  expect(cutToBytes("aé😀", 7)).toBe("aé😀");
  expect(cutToBytes("\ud800", 10)).toBe("\ufffd");
});

test("a JSON Pointer escapes what it must", () => {
  expect(jsonPointer([])).toBe("");
  expect(jsonPointer(["a/b", 0, "~"])).toBe("/a~1b/0/~0");
});

test("freezing reaches everything plain, and leaves other objects and cycles in peace", () => {
  const value: Record<string, unknown> = { list: [{ x: 1 }], when: new Date(0) };
  value["self"] = value;
  deepFreeze(value);
  expect(Object.isFrozen(value)).toBe(true);
  expect(Object.isFrozen((value["list"] as unknown[])[0])).toBe(true);
  expect(Object.isFrozen(value["when"])).toBe(false);
});
