import { RE2JS } from "re2js";

/**
 * Regular expressions of schemas. They come from strangers and their values too, so a backtracking engine can be
 * made to run for hours.
 *
 * 1. A pattern means what ECMA-262 says with the `u` flag. Where it is no such pattern, a needless escape such as
 *    `\:` (many libraries print them) is read as the character, and failing that the pattern is read without `u`.
 * 2. {@link linearPattern} answers only for patterns whose meaning it can carry over exactly to a linear-time
 *    engine; everything else (lookaround, backreferences, Unicode properties, class tricks) is declined.
 * 3. Nothing here runs a backtracking match; compiling either kind costs time linear in a bounded size.
 */

/** What ajv asks of an engine. */
export interface Matcher {
  test(text: string): boolean;
}

/** The backtracking form, which only threads with a time limit may run; undefined when the pattern is broken. */
export function nativePattern(pattern: string): RegExp | undefined {
  return compile(pattern, "u") ?? compile(withoutNeedlessEscapes(pattern), "u") ?? compile(pattern, "");
}

/** The linear-time form and the size of its program, or undefined when the pattern has none that is surely equal. */
export function linearPattern(pattern: string): { readonly matcher: Matcher; readonly size: number } | undefined {
  const native = nativePattern(pattern);
  if (native?.flags !== "u") return undefined;
  const translated = translate(native.source);
  if (translated === undefined || translated.size > MAX_PROGRAM) return undefined;
  try {
    return { matcher: RE2JS.compile(translated.pattern), size: translated.size };
  } catch {
    // The engine has limits of its own (repetitions, nesting); beyond them the pattern is simply not linear for us.
    return undefined;
  }
}

/** Instructions; a larger program is slow enough per character to belong in a thread. */
const MAX_PROGRAM = 400;
const MAX_REPEAT = 256;
const SYNTAX = new Set("^$\\.*+?()[]{}|/");
/** Punctuation that legacy syntax lets one escape for nothing. A comma is none: `x{1\,2}` is no repetition. */
const NEEDLESS = new Set(" !\"#%&'-:;<=>@_`~");

function compile(pattern: string, flags: string): RegExp | undefined {
  try {
    return new RegExp(pattern, flags);
  } catch {
    return undefined;
  }
}

function withoutNeedlessEscapes(pattern: string): string {
  let out = "";
  let inClass = false;
  for (let i = 0; i < pattern.length; i++) {
    const char = pattern.charAt(i);
    if (char === "\\") {
      const next = pattern.charAt(i + 1);
      out += NEEDLESS.has(next) && !(next === "-" && inClass) ? next : char + next;
      i++;
      continue;
    }
    if (char === "[") inClass = true;
    else if (char === "]") inClass = false;
    out += char;
  }
  return out;
}

const BLANKS = "\\x{9}-\\x{d}\\x{20}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{feff}";
const ANY_BUT_LINE_ENDS = "[^\\x{a}\\x{d}\\x{2028}\\x{2029}]";

interface Translated {
  readonly pattern: string;
  readonly size: number;
}

/** From a pattern that compiles with `u` to RE2 syntax of the same language. Captures are dropped: only `test` is asked. */
function translate(source: string): Translated | undefined {
  const reader = new Reader(source);
  const groups: number[] = [];
  let out = "";
  let size = 0;
  let atomFrom = 0;
  while (!reader.done()) {
    const char = reader.next();
    switch (char) {
      case "^":
      case "$":
      case "|":
        atomFrom = size;
        out += char;
        size++;
        break;
      case "(":
        if (reader.take("?:") === false && reader.startsWith("?")) {
          if (!reader.startsWith("?<") || reader.startsWith("?<=") || reader.startsWith("?<!")) return undefined;
          reader.skipPast(">");
        }
        groups.push(size);
        out += "(?:";
        break;
      case ")":
        atomFrom = groups.pop() ?? 0;
        out += ")";
        break;
      case "*":
      case "+":
      case "?":
        out += char;
        size++;
        reader.take("?");
        break;
      case "{": {
        const [least, most] = reader.repeat();
        if (Math.max(least, most ?? 0) > MAX_REPEAT) return undefined;
        out += most === undefined ? `{${least},}` : `{${least},${most}}`;
        size = atomFrom + (size - atomFrom + 1) * Math.max(least, most ?? least + 1, 1);
        if (size > MAX_PROGRAM) return undefined;
        reader.take("?");
        break;
      }
      default: {
        const atom = readAtom(char, reader);
        if (atom === undefined) return undefined;
        atomFrom = size;
        out += atom;
        size++;
      }
    }
  }
  return { pattern: out, size: size + 1 };
}

function readAtom(char: string, reader: Reader): string | undefined {
  if (char === ".") return ANY_BUT_LINE_ENDS;
  if (char === "[") return readClass(reader);
  if (char !== "\\") return quoted(char);
  const kind = reader.next();
  switch (kind) {
    // Not "B": the native engine finds one between the halves of an astral character.
    case "b":
    case "d":
    case "D":
    case "w":
    case "W":
      return `\\${kind}`;
    case "s":
      return `[${BLANKS}]`;
    case "S":
      return `[^${BLANKS}]`;
    default: {
      const one = readEscape(kind, reader);
      return one === undefined ? undefined : quoted(one);
    }
  }
}

function readClass(reader: Reader): string | undefined {
  let out = reader.take("^") ? "[^" : "[";
  if (reader.startsWith("]")) return undefined;
  while (!reader.take("]")) {
    const item = readClassItem(reader);
    if (item === undefined) return undefined;
    out += item;
    // A range: the syntax was checked, so both ends are single characters.
    if (reader.startsWith("-") && !reader.startsWith("-]")) {
      reader.take("-");
      const end = readClassItem(reader);
      if (end === undefined) return undefined;
      out += `-${end}`;
    }
  }
  return `${out}]`;
}

function readClassItem(reader: Reader): string | undefined {
  const char = reader.next();
  if (char !== "\\") return quoted(char);
  const kind = reader.next();
  switch (kind) {
    case "d":
    case "D":
    case "w":
    case "W":
      return `\\${kind}`;
    case "s":
      return BLANKS;
    case "b":
      return quoted("\b");
    case "-":
      return quoted("-");
    default: {
      const one = readEscape(kind, reader);
      return one === undefined ? undefined : quoted(one);
    }
  }
}

/** The character an escape stands for; undefined for escapes that are no single character. */
function readEscape(kind: string, reader: Reader): string | undefined {
  if (SYNTAX.has(kind)) return kind;
  switch (kind) {
    case "t":
      return "\t";
    case "n":
      return "\n";
    case "v":
      return "\v";
    case "f":
      return "\f";
    case "r":
      return "\r";
    case "0":
      return "\0";
    case "c":
      return String.fromCharCode(reader.next().charCodeAt(0) % 32);
    case "x":
      return String.fromCharCode(reader.hex(2));
    case "u": {
      if (reader.take("{")) return String.fromCodePoint(Number.parseInt(reader.skipPast("}"), 16));
      const unit = reader.hex(4);
      if (unit >= 0xd800 && unit <= 0xdfff) return undefined;
      return String.fromCharCode(unit);
    }
    default:
      return undefined;
  }
}

function quoted(char: string): string {
  if (/^[A-Za-z0-9]$/.test(char)) return char;
  const point = char.codePointAt(0) ?? 0;
  return `\\x{${point.toString(16)}}`;
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  done(): boolean {
    return this.#at >= this.#text.length;
  }

  /** The next code point. */
  next(): string {
    const char = String.fromCodePoint(this.#text.codePointAt(this.#at) ?? 0);
    this.#at += char.length;
    return char;
  }

  startsWith(word: string): boolean {
    return this.#text.startsWith(word, this.#at);
  }

  take(word: string): boolean {
    if (!this.startsWith(word)) return false;
    this.#at += word.length;
    return true;
  }

  /** What lies before `end`; the reader then stands after it. */
  skipPast(end: string): string {
    const to = this.#text.indexOf(end, this.#at);
    const between = this.#text.slice(this.#at, to);
    this.#at = to + end.length;
    return between;
  }

  hex(digits: number): number {
    const from = this.#at;
    this.#at += digits;
    return Number.parseInt(this.#text.slice(from, this.#at), 16);
  }

  /** `n}`, `n,}` or `n,m}`. */
  repeat(): [number, number | undefined] {
    const [least = "", most] = this.skipPast("}").split(",");
    if (most === undefined) return [Number(least), Number(least)];
    return [Number(least), most === "" ? undefined : Number(most)];
  }
}
