import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { acceptJson, canonicalJson, exceedsUtf8, MAX_JSON_DEPTH } from "./json.js";

const MIB = 1 << 20;

function problem(text: string, maxBytes = MIB): string {
  const accepted = acceptJson(text, maxBytes);
  if (accepted.ok) throw new Error(`accepted: ${text.slice(0, 80)}`);
  return accepted.problem;
}

function accept(text: string, maxBytes = MIB): { text: string; value: unknown } {
  const accepted = acceptJson(text, maxBytes);
  if (!accepted.ok) throw new Error(accepted.problem);
  return accepted;
}

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** JSON values that none of our own rules refuses. */
const plainValue = fc.jsonValue({ maxDepth: 6, stringUnit: "binary" }).filter((value) => {
  const text = JSON.stringify(value);
  return !/\d{16}/.test(text);
});

describe("acceptJson", () => {
  it("accepts every value JSON.parse gives and re-serialises it as JSON.stringify does", () => {
    fc.assert(
      fc.property(plainValue, fc.constantFrom(undefined, 1, "\t", " \n"), (value, indent) => {
        const text = JSON.stringify(value, null, indent);
        const accepted = accept(text);
        expect(accepted.text).toBe(JSON.stringify(JSON.parse(text)));
        expect(accepted.value).toEqual(JSON.parse(text));
      }),
      { numRuns: 500 },
    );
  });

  it("agrees with JSON.parse on damaged text, but for its own rules", () => {
    const noise = fc.constantFrom(...'{}[]",:\\/u0123456789eE+-. \n\ttruefalsn\u0000\u001f\u007f\u00e9dD8c'.split(""));
    fc.assert(
      fc.property(
        plainValue,
        fc.array(fc.tuple(fc.nat(), fc.nat(2), noise), {
          minLength: 1,
          maxLength: 3,
        }),
        (value, edits) => {
          let text = JSON.stringify(value);
          for (const [at, cut, put] of edits) {
            const i = at % (text.length + 1);
            text = text.slice(0, i) + put + text.slice(i + cut);
          }
          const accepted = acceptJson(text, MIB);
          if (accepted.ok) expect(accepted.value).toEqual(JSON.parse(text));
          else if (accepted.problem.startsWith("invalid JSON")) expect(parses(text)).toBe(false);
          else expect(accepted.problem).toMatch(/already in its object|surrogate|beyond|larger than a double/);
        },
      ),
      { numRuns: 3000 },
    );
  });

  it.each([
    "",
    " ",
    "{",
    "[",
    "[1,]",
    '{"a":1,}',
    "{,}",
    '{"a"}',
    '{"a":}',
    "{a:1}",
    "{'a':1}",
    "01",
    "-",
    "+1",
    "1.",
    ".5",
    "1e",
    "1e+",
    "0x1",
    "NaN",
    "Infinity",
    "undefined",
    "tru",
    "nullx",
    "1 2",
    "[1}",
    '{"a":1]',
    '"',
    '"\\',
    '"\\x"',
    '"\\u12"',
    '"\\u12g4"',
    '"\n"',
    '"\u0000"',
    "\u00a01",
    "\ufeff1",
    "[1]]",
    "//c\n1",
    '{"a":1 "b":2}',
    "[1 2]",
  ])("refuses the invalid text %j with the offset", (text) => {
    expect(parses(text)).toBe(false);
    expect(problem(text)).toMatch(/^invalid JSON at offset \d+/);
  });

  it.each([
    "0",
    "-0",
    "null",
    "true",
    "false",
    '""',
    "[]",
    "{}",
    " [ ] ",
    "\t{ }\r\n",
    "1.5e-3",
    "1E5",
    '"\\/\\b\\f\\n\\r\\t\\"\\\\"',
    '{"":0}',
  ])("accepts %j", (text) => {
    expect(accept(text).text).toBe(JSON.stringify(JSON.parse(text)));
  });

  it("refuses a member name that appears twice in one object, also when one of them is escaped", () => {
    expect(problem('{"a":1,"b":2,"a":3}')).toBe('the member name "a" at offset 13 is already in its object; send it once');
    expect(problem('{"a":1,"\\u0061":3}')).toContain("already in its object");
    expect(problem('{"__proto__":1,"__proto__":2}')).toContain("already in its object");
    expect(problem('[{"x":{"y":1,"y":1}}]')).toContain("already in its object");
    const many = Array.from({ length: 100 }, (_, i) => `"n${i}":0`);
    expect(accept(`{${many.join(",")}}`).text).toContain('"n99":0');
    expect(problem(`{${many.join(",")},"n3":1}`)).toContain('"n3"');
    expect(problem(`{${many.join(",")},"n99":1}`)).toContain('"n99"');
  });

  it("lets one name stand in several objects of one value", () => {
    const text = '[{"a":{"a":{"a":1}},"b":{"a":2}},{"a":3}]';
    expect(accept(text).text).toBe(text);
  });

  it.each([
    '"\\ud800"',
    '"\\udc00"',
    '"\\udc00\\ud800"',
    '"\\ud800x"',
    '"\\ud800\\n"',
    '"\ud800"',
    '"\udc00"',
    '{"\\ud83d":1}',
    '"\\ud83d\ude00"',
    '"\ud83d\\ude00"',
  ])("refuses the lone surrogate in %j", (text) => {
    expect(problem(text)).toContain("surrogate");
  });

  it("keeps astral characters, NUL and line separators", () => {
    for (const text of ['"\\ud83d\\ude00"', '"\u{1f600}"', '"\\u0000"', '"\u2028\u2029\u007f"', '{"\u{1f600}":"\\uD83D\\uDE00"}']) {
      expect(accept(text).value).toEqual(JSON.parse(text));
    }
  });

  it("refuses integer literals beyond 2^53-1 and takes every one within", () => {
    for (const text of ["9007199254740991", "-9007199254740991", "[999999999999999]"]) {
      expect(accept(text).text).toBe(text);
    }
    for (const text of ["9007199254740992", "-9007199254740992", "9007199254740993", "100000000000000000000", `1${"0".repeat(400)}`]) {
      expect(problem(text)).toBe(`the integer at offset 0 is beyond ±(2^53−1); send it as a string`);
    }
  });

  it("rounds other numbers to the nearest double and refuses those that overflow", () => {
    expect(accept("9007199254740993.0").text).toBe("9007199254740992");
    expect(accept("1e20").text).toBe("100000000000000000000");
    expect(accept("1e21").text).toBe("1e+21");
    expect(accept("0.1000000000000000055511151231257827").text).toBe("0.1");
    expect(accept("1e-400").text).toBe("0");
    expect(accept("-0.0").text).toBe("0");
    expect(accept(`0.${"1".repeat(400)}`).value).toBe(1 / 9);
    for (const text of ["1e400", "-1e400", "1.8e308", `${"9".repeat(400)}.0`]) {
      expect(problem(text)).toContain("larger than a double can hold");
    }
  });

  it("refuses nesting over 512 levels and any deeper text without overflowing the stack", () => {
    const nested = (depth: number): string => "[".repeat(depth) + "]".repeat(depth);
    expect(accept(nested(MAX_JSON_DEPTH)).text).toBe(nested(MAX_JSON_DEPTH));
    expect(problem(nested(MAX_JSON_DEPTH + 1))).toBe("nested more than 512 levels at offset 512; flatten the value");
    expect(problem("[".repeat(MIB))).toContain("nested more than 512");
    expect(problem('{"a":'.repeat(200_000), MIB)).toContain("nested more than 512");
  });

  it("counts UTF-8 bytes and checks them before parsing", () => {
    expect(accept('"éé"', 6).text).toBe('"éé"');
    expect(problem('"éé"', 5)).toBe("the JSON text is longer than 5 bytes of UTF-8; send less");
    expect(problem("not JSON", 4)).toContain("longer than 4 bytes");
    expect(accept('"\u{1f600}"', 6).value).toBe("\u{1f600}");
    expect(problem('"\u{1f600}"', 5)).toContain("longer than 5 bytes");
  });

  it("holds the budget again after numbers are written out", () => {
    expect(problem("[1e20,1e20]", 20)).toContain("once its numbers are written out");
  });

  it("keeps __proto__, constructor and toString as plain own members", () => {
    const text = '{"__proto__":{"polluted":true},"constructor":1,"toString":2}';
    const accepted = accept(text);
    expect(accepted.text).toBe(text);
    expect(Object.keys(accepted.value as object)).toEqual(["__proto__", "constructor", "toString"]);
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });

  it("quotes no value in any problem", () => {
    for (const text of ['{"a":"s3cret"', '["s3cret" "x"]', '"s3cret\\ud800"', "s3cret", '{"a":1,"a":"s3cret"}']) {
      expect(problem(text)).not.toContain("s3cret");
    }
  });

  it("takes a 1 MiB value in far less than a tick anyone would notice", () => {
    const members = Array.from({ length: 60_000 }, (_, i) => `"n${i}":{"a":[1,2.5,"x"]}`);
    const text = `{${members.join(",")}}`;
    accept(text, 4 * MIB);
    // Processor time: what else the machine does is no part of it.
    const began = process.cpuUsage();
    accept(text, 4 * MIB);
    expect(process.cpuUsage(began).user / 1000).toBeLessThan(500);
  });
});

describe("exceedsUtf8", () => {
  it("agrees with TextEncoder for well-formed text", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.integer({ min: -3, max: 3 }), (text, slack) => {
        const bytes = new TextEncoder().encode(text).length;
        expect(exceedsUtf8(text, bytes + slack)).toBe(slack < 0);
      }),
    );
  });
});

describe("canonicalJson", () => {
  it("writes the example of RFC 8785 section 3.2.2", () => {
    const value = JSON.parse(
      String.raw`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`,
    );
    expect(canonicalJson(value)).toBe(
      String.raw`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
    );
  });

  it("sorts names by UTF-16 code units as RFC 8785 section 3.2.3 shows", () => {
    const value = JSON.parse(
      String.raw`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
    );
    expect(Object.values(JSON.parse(canonicalJson(value)) as object)).toHaveLength(7);
    const order = [...canonicalJson(value).matchAll(/:"([^"]+)"/g)].map((match) => match[1]);
    expect(order).toEqual([
      "Carriage Return",
      "One",
      "Control",
      "Latin Small Letter O With Diaeresis",
      "Euro Sign",
      "Emoji: Grinning Face",
      "Hebrew Letter Dalet With Dagesh",
    ]);
  });

  it("writes the numbers of RFC 8785 appendix B", () => {
    const samples: [string, string][] = [
      ["0000000000000000", "0"],
      ["8000000000000000", "0"],
      ["0000000000000001", "5e-324"],
      ["8000000000000001", "-5e-324"],
      ["7fefffffffffffff", "1.7976931348623157e+308"],
      ["4340000000000000", "9007199254740992"],
      ["4430000000000000", "295147905179352830000"],
      ["44b52d02c7e14af5", "9.999999999999997e+22"],
      ["44b52d02c7e14af6", "1e+23"],
      ["444b1ae4d6e2ef4e", "999999999999999700000"],
      ["444b1ae4d6e2ef50", "1e+21"],
      ["3eb0c6f7a0b5ed8c", "9.999999999999997e-7"],
      ["3eb0c6f7a0b5ed8d", "0.000001"],
      ["41b3de4355555553", "333333333.3333332"],
      ["41b3de4355555557", "333333333.33333343"],
      ["becbf647612f3696", "-0.0000033333333333333333"],
    ];
    for (const [hex, text] of samples) {
      const view = new DataView(new ArrayBuffer(8));
      view.setBigUint64(0, BigInt(`0x${hex}`));
      expect(canonicalJson(view.getFloat64(0))).toBe(text);
    }
    expect(() => canonicalJson(Number.NaN)).toThrow(TypeError);
    expect(() => canonicalJson(Number.POSITIVE_INFINITY)).toThrow(TypeError);
  });

  it("gives one text for values that differ only in member order, and parses back to the same value", () => {
    fc.assert(
      fc.property(plainValue, (value) => {
        const text = canonicalJson(value);
        expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(value)));
        expect(canonicalJson(reversed(value))).toBe(text);
      }),
    );
  });

  it("keeps __proto__ as a member and copes with the deepest accepted value", () => {
    expect(canonicalJson(JSON.parse('{"b":1,"__proto__":2}'))).toBe('{"__proto__":2,"b":1}');
    const deep = "[".repeat(MAX_JSON_DEPTH) + "]".repeat(MAX_JSON_DEPTH);
    expect(canonicalJson(JSON.parse(deep))).toBe(deep);
  });

  it("throws for what JSON has not", () => {
    expect(() => canonicalJson(undefined)).toThrow(TypeError);
    expect(() => canonicalJson({ a: () => 1 })).toThrow(TypeError);
  });
});

function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([name, member]) => [name, reversed(member)]),
  );
}
