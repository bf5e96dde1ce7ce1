/**
 * JSON text at the edge: scanned, parsed and re-serialised once, so that the value judged is the value
 * journaled is the value run.
 *
 * 1. Nothing is silently changed. Refused: invalid JSON, a member name twice in one object (compared after
 *    unescaping), lone surrogates (raw or escaped, in names too), integer literals beyond ±(2^53−1), numbers that
 *    overflow, nesting over 512, text over its byte budget.
 * 2. An integer literal is one without fraction and exponent. Every other number is the nearest double:
 *    `9007199254740993.0` becomes 9007199254740992, `1e20` becomes 100000000000000000000, `1e-400` becomes 0,
 *    and `1e400` is refused because the nearest double is no JSON number. `-0` may become `0`.
 * 3. The budget holds before parsing and again after re-serialising, since `1e20` grows.
 * 4. Depth is bounded by an iterative scan before anything recursive walks the value.
 * 5. `__proto__` and its like are plain own members.
 * 6. A problem names an offset (UTF-16 units into the text) and never quotes a value, which may be a secret.
 */

/** Containers within containers; the value itself is level 1 when it is an array or object. */
export const MAX_JSON_DEPTH = 512;

export type AcceptedJson =
  | {
      readonly ok: true;
      /** The re-serialised form: `JSON.stringify(value)`. */
      readonly text: string;
      readonly value: unknown;
    }
  | {
      readonly ok: false;
      /** A phrase that can follow the name of the field, e.g. `invalid JSON at offset 3: …`. */
      readonly problem: string;
    };

/** Accepts JSON text of at most `maxBytes` UTF-8 bytes, or says why not. Never throws. */
export function acceptJson(text: string, maxBytes: number): AcceptedJson {
  if (exceedsUtf8(text, maxBytes)) {
    return {
      ok: false,
      problem: `the JSON text is longer than ${maxBytes} bytes of UTF-8; send less`,
    };
  }
  const scan = new Scan(text);
  if (!scan.run()) return { ok: false, problem: scan.problem };
  const value: unknown = JSON.parse(text);
  // JSON.parse keeps one of two equal names, so a repeated name shows as a member missing: counting costs a
  // fraction of comparing names. Only then is the text scanned again, to say which.
  if (countMembers(value) !== scan.members) {
    const naming = new Scan(text, true);
    naming.run();
    return { ok: false, problem: naming.problem };
  }
  const again = JSON.stringify(value);
  if (exceedsUtf8(again, maxBytes)) {
    return {
      ok: false,
      problem: `the JSON text is longer than ${maxBytes} bytes of UTF-8 once its numbers are written out; send less`,
    };
  }
  return { ok: true, text: again, value };
}

/** Whether the UTF-8 form of `text` is longer than `maxBytes`. Counts only when the length alone does not decide. */
export function exceedsUtf8(text: string, maxBytes: number): boolean {
  if (text.length > maxBytes) return true;
  if (text.length * 3 <= maxBytes) return false;
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x80) continue;
    // A surrogate is half of a four-byte character.
    bytes += unit < 0x800 || (unit >= 0xd800 && unit <= 0xdfff) ? 1 : 2;
  }
  return bytes > maxBytes;
}

/**
 * The RFC 8785 form: members in the order of their names' UTF-16 code units, no blanks, numbers and strings as
 * ECMAScript writes them. Takes values that {@link acceptJson} gave; throws TypeError for anything JSON has not.
 */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = value as Record<string, unknown>;
    const parts = Object.keys(members)
      .sort()
      .map((name) => `${JSON.stringify(name)}:${canonicalJson(members[name])}`);
    return `{${parts.join(",")}}`;
  }
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError("JSON has no NaN and no Infinity");
  const text: string | undefined = JSON.stringify(value);
  if (text === undefined) throw new TypeError(`JSON has no ${typeof value}`);
  return text;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** Integer literals up to this many digits are safe whatever they are. */
const SAFE_DIGITS = 15;
/** A number without exponent and with fewer characters than this cannot overflow. */
const SAFE_NUMBER_LENGTH = 300;
const MAX_QUOTED_NAME = 64;

class Scan {
  problem = "";
  /** Members met, of all objects together. */
  members = 0;
  readonly #text: string;
  readonly #compareNames: boolean;
  #at = 0;
  /** Names met at each depth of the object that is open there. */
  readonly #names: Set<string>[] = [];

  constructor(text: string, compareNames = false) {
    this.#text = text;
    this.#compareNames = compareNames;
  }

  /** One pass over the whole text. False leaves the reason in `problem`. */
  run(): boolean {
    const isObject: boolean[] = [];
    for (;;) {
      // A value begins here.
      const start = this.#blanks();
      if (start === OPEN_OBJECT || start === OPEN_ARRAY) {
        if (isObject.length === MAX_JSON_DEPTH) {
          return this.#refuse(`nested more than ${MAX_JSON_DEPTH} levels at offset ${this.#at}; flatten the value`);
        }
        const object = start === OPEN_OBJECT;
        isObject.push(object);
        this.#at++;
        const next = this.#blanks();
        if (next !== (object ? CLOSE_OBJECT : CLOSE_ARRAY)) {
          if (object) {
            if (this.#compareNames) this.#names[isObject.length] = new Set();
            if (!this.#memberName(isObject.length)) return false;
          }
          continue;
        }
        isObject.pop();
        this.#at++;
      } else if (!this.#scalar(start)) {
        return false;
      }
      // A value has ended here: close what it closes, then go to the next value.
      for (;;) {
        const next = this.#blanks();
        const depth = isObject.length;
        if (depth === 0) return this.#at === this.#text.length || this.#unexpected("the end of the text");
        const object = isObject[depth - 1] === true;
        if (next === COMMA) {
          this.#at++;
          if (object && !this.#memberName(depth)) return false;
          break;
        }
        if (next !== (object ? CLOSE_OBJECT : CLOSE_ARRAY)) return this.#unexpected(object ? ", or }" : ", or ]");
        isObject.pop();
        this.#at++;
      }
    }
  }

  /** Skips blanks and gives the code unit there; NaN at the end. */
  #blanks(): number {
    for (;;) {
      const unit = this.#text.charCodeAt(this.#at);
      if (unit !== 0x20 && unit !== 0x0a && unit !== 0x0d && unit !== 0x09) return unit;
      this.#at++;
    }
  }

  #scalar(start: number): boolean {
    switch (start) {
      case QUOTE:
        return this.#string();
      case 0x74:
        return this.#literal("true");
      case 0x66:
        return this.#literal("false");
      case 0x6e:
        return this.#literal("null");
      default:
        return start === MINUS || isDigit(start) ? this.#number() : this.#unexpected("a value");
    }
  }

  #literal(word: string): boolean {
    if (!this.#text.startsWith(word, this.#at)) return this.#unexpected("a value");
    this.#at += word.length;
    return true;
  }

  /** A name and its colon. */
  #memberName(depth: number): boolean {
    if (this.#blanks() !== QUOTE) return this.#unexpected("a member name in double quotes");
    const start = this.#at;
    if (!this.#string()) return false;
    this.members++;
    if (this.#compareNames && !this.#newName(depth, start)) return false;
    if (this.#blanks() !== COLON) return this.#unexpected(":");
    this.#at++;
    return true;
  }

  #newName(depth: number, start: number): boolean {
    const names = this.#names[depth];
    const name = JSON.parse(this.#text.slice(start, this.#at)) as string;
    if (names === undefined || !names.has(name)) {
      names?.add(name);
      return true;
    }
    const quoted = name.length <= MAX_QUOTED_NAME ? ` ${JSON.stringify(name)}` : "";
    return this.#refuse(`the member name${quoted} at offset ${start} is already in its object; send it once`);
  }

  #string(): boolean {
    const text = this.#text;
    let i = this.#at + 1;
    for (;;) {
      const unit = text.charCodeAt(i);
      if (unit === QUOTE) {
        this.#at = i + 1;
        return true;
      }
      if (unit === BACKSLASH) {
        const end = this.#escape(i);
        if (end === 0) return false;
        i = end;
      } else if (unit >= 0xd800 && unit <= 0xdfff) {
        if (unit > 0xdbff || !isLowSurrogate(text.charCodeAt(i + 1))) {
          this.#loneSurrogate(i);
          return false;
        }
        i += 2;
      } else if (unit >= 0x20) {
        i++;
      } else {
        // A control character, or NaN: past the end.
        this.#at = i;
        this.#unexpected(i < text.length ? "an escape such as \\n or \\u0000 in place of a control character" : 'the closing "');
        return false;
      }
    }
  }

  /** The offset after the escape at `i`, both halves of a pair taken together; 0 when it is malformed. */
  #escape(i: number): number {
    const kind = this.#text.charCodeAt(i + 1);
    if (kind !== 0x75) {
      if (isShortEscape(kind)) return i + 2;
      this.#at = i;
      this.#unexpected("a JSON escape");
      return 0;
    }
    const unit = this.#hexUnit(i + 2);
    if (unit < 0) {
      this.#at = i;
      this.#unexpected("\\u and four hexadecimal digits");
      return 0;
    }
    if (unit < 0xd800 || unit > 0xdfff) return i + 6;
    const paired = unit <= 0xdbff && this.#text.startsWith("\\u", i + 6) && isLowSurrogate(this.#hexUnit(i + 8));
    if (paired) return i + 12;
    this.#loneSurrogate(i);
    return 0;
  }

  #hexUnit(i: number): number {
    let unit = 0;
    for (let k = i; k < i + 4; k++) {
      const digit = hexDigit(this.#text.charCodeAt(k));
      if (digit < 0) return -1;
      unit = unit * 16 + digit;
    }
    return unit;
  }

  #number(): boolean {
    const start = this.#at;
    if (this.#text.charCodeAt(this.#at) === MINUS) this.#at++;
    const digitsFrom = this.#at;
    if (!this.#digits()) return this.#unexpected("a digit");
    if (this.#text.charCodeAt(digitsFrom) === 0x30 && this.#at > digitsFrom + 1) {
      this.#at = digitsFrom;
      return this.#unexpected("a number without leading zeros");
    }
    const integerDigits = this.#at - digitsFrom;
    let integer = true;
    let exponent = false;
    if (this.#text.charCodeAt(this.#at) === POINT) {
      integer = false;
      this.#at++;
      if (!this.#digits()) return this.#unexpected("a digit");
    }
    const mark = this.#text.charCodeAt(this.#at);
    if (mark === 0x65 || mark === 0x45) {
      integer = false;
      exponent = true;
      this.#at++;
      const sign = this.#text.charCodeAt(this.#at);
      if (sign === MINUS || sign === 0x2b) this.#at++;
      if (!this.#digits()) return this.#unexpected("a digit");
    }
    if (integer) {
      if (integerDigits <= SAFE_DIGITS) return true;
      // Rounding cannot hide an excess: 2^53 is itself a double, so everything above rounds to 2^53 or more.
      if (Math.abs(Number(this.#text.slice(start, this.#at))) <= Number.MAX_SAFE_INTEGER) return true;
      return this.#refuse(`the integer at offset ${start} is beyond ±(2^53−1); send it as a string`);
    }
    if (!exponent && this.#at - start < SAFE_NUMBER_LENGTH) return true;
    if (Number.isFinite(Number(this.#text.slice(start, this.#at)))) return true;
    return this.#refuse(`the number at offset ${start} is larger than a double can hold; send it as a string`);
  }

  #digits(): boolean {
    const from = this.#at;
    while (isDigit(this.#text.charCodeAt(this.#at))) this.#at++;
    return this.#at > from;
  }

  #loneSurrogate(offset: number): void {
    this.#refuse(`half of a surrogate pair stands alone at offset ${offset}; send whole characters`);
  }

  #unexpected(expected: string): false {
    const where = this.#at >= this.#text.length ? `, where the text ends` : "";
    return this.#refuse(`invalid JSON at offset ${this.#at}${where}: expected ${expected}`);
  }

  #refuse(problem: string): false {
    this.problem = problem;
    return false;
  }
}

/** Members of all objects in a value of bounded depth. */
function countMembers(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  let members = 0;
  if (Array.isArray(value)) {
    for (const item of value) if (typeof item === "object") members += countMembers(item);
    return members;
  }
  for (const name of Object.keys(value)) {
    const member = (value as Record<string, unknown>)[name];
    members += typeof member === "object" ? 1 + countMembers(member) : 1;
  }
  return members;
}

function isDigit(unit: number): boolean {
  return unit >= 0x30 && unit <= 0x39;
}

function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}

function isShortEscape(unit: number): boolean {
  switch (unit) {
    case QUOTE:
    case BACKSLASH:
    case 0x2f: // /
    case 0x62: // b
    case 0x66: // f
    case 0x6e: // n
    case 0x72: // r
    case 0x74: // t
      return true;
    default:
      return false;
  }
}

function hexDigit(unit: number): number {
  if (isDigit(unit)) return unit - 0x30;
  const lower = unit | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
