/**
 * From JavaScript values to JSON text, exactly or not at all.
 *
 * 1. What comes out is what `JSON.stringify` would write, or a refusal that names the place. Nothing is rounded,
 *    dropped or replaced in silence: only undefined members are left out, and undefined elsewhere is null.
 * 2. Whatever this writes, Brain accepts: no lone surrogates, no integer literals beyond ±(2^53-1), no nesting over 512.
 * 3. A value is read once, and the text never grows past its budget, however the value is shared or built.
 */
import { createHash } from "node:crypto";
import { types } from "node:util";

/** Bytes of UTF-8 that one input, output or event may take. */
export const VALUE_MAX_BYTES = 1024 * 1024;
/** Bytes of UTF-8 that the details of one Failure may take. */
export const DETAILS_MAX_BYTES = 64 * 1024;
/** Bytes of UTF-8 that one schema, or one placement's options, may take. */
export const SCHEMA_MAX_BYTES = 256 * 1024;
/** Bytes of UTF-8 that the description of a Tool may take. */
export const DESCRIPTION_MAX_BYTES = 64 * 1024;
/** How deep arrays and objects may nest. */
export const MAX_DEPTH = 512;

/** A value's JSON text, or why it has none and where: `path` is a JSON Pointer, empty for the value itself. */
export type JsonText = { ok: true; text: string } | { ok: false; path: string; problem: string };

class NotJson {
  readonly path: readonly (string | number)[];
  readonly problem: string;
  constructor(path: readonly (string | number)[], problem: string) {
    this.path = path;
    this.problem = problem;
  }
}

/**
 * Writes a value as JSON text of at most `maxBytes`. Throws only what the value's own getters and `toJSON` throw.
 */
export function toJsonText(value: unknown, maxBytes: number = VALUE_MAX_BYTES): JsonText {
  try {
    const text = new Writer(maxBytes).write(value);
    const bytes = Buffer.byteLength(text);
    if (bytes > maxBytes) return { ok: false, path: "", problem: tooLong(maxBytes) };
    return { ok: true, text };
  } catch (error) {
    if (error instanceof NotJson) return { ok: false, path: jsonPointer(error.path), problem: error.problem };
    throw error;
  }
}

/** RFC 6901: the empty string names the whole value. */
export function jsonPointer(path: readonly (string | number)[]): string {
  return path.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}

function tooLong(maxBytes: number): string {
  return `the value is longer than ${maxBytes} bytes of JSON`;
}

// With the u flag a pair is one code point, so this finds lone surrogates only.
const LONE_SURROGATE = /[\uD800-\uDFFF]/u;
const INTEGER_LITERAL = /^-?\d+$/;

class Writer {
  readonly #maxBytes: number;
  readonly #path: (string | number)[] = [];
  readonly #ancestors = new Set<object>();
  #written = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  write(value: unknown): string {
    return this.#value(value, "") ?? "null";
  }

  /** Undefined stands for a value that JSON leaves out. */
  #value(given: unknown, key: string): string | undefined {
    const value = unboxed(given, key);
    switch (typeof value) {
      case "undefined":
        return undefined;
      case "boolean":
        return this.#count(value ? "true" : "false");
      case "string":
        return this.#count(this.#string(value));
      case "number":
        return this.#count(this.#number(value));
      case "object":
        if (value === null) return this.#count("null");
        return this.#container(value);
      case "bigint":
      case "function":
      case "symbol":
        return this.#refuse(`a ${typeof value} has no JSON form`);
    }
  }

  #string(value: string): string {
    if (LONE_SURROGATE.test(value)) this.#refuse("the text holds a lone surrogate, which no UTF-8 can carry");
    return JSON.stringify(value);
  }

  #number(value: number): string {
    if (!Number.isFinite(value)) this.#refuse(`${value} has no JSON form`);
    const text = JSON.stringify(value);
    if (!Number.isSafeInteger(value) && INTEGER_LITERAL.test(text)) {
      this.#refuse("the integer is beyond ±(2^53-1), where doubles are no longer exact; send it as text");
    }
    return text;
  }

  #container(value: object): string {
    if (this.#ancestors.has(value)) this.#refuse("the value holds itself");
    if (this.#ancestors.size >= MAX_DEPTH) this.#refuse(`the value is nested deeper than ${MAX_DEPTH}`);
    const foreign = foreignKind(value);
    if (foreign !== undefined) this.#refuse(`a ${foreign} has no JSON form`);
    this.#ancestors.add(value);
    const text = Array.isArray(value) ? this.#array(value) : this.#object(value as Record<string, unknown>);
    this.#ancestors.delete(value);
    return text;
  }

  #array(value: readonly unknown[]): string {
    const parts: string[] = [];
    this.#count("[]");
    for (let index = 0; index < value.length; index++) {
      this.#path.push(index);
      parts.push(this.#value(value[index], String(index)) ?? this.#count("null"));
      this.#path.pop();
      this.#count(",");
    }
    return `[${parts.join(",")}]`;
  }

  #object(value: Readonly<Record<string, unknown>>): string {
    const parts: string[] = [];
    this.#count("{}");
    for (const key of Object.keys(value)) {
      this.#path.push(key);
      const text = this.#value(value[key], key);
      if (text !== undefined) {
        const name = this.#string(key);
        this.#count(name);
        this.#count(":,");
        parts.push(`${name}:${text}`);
      }
      this.#path.pop();
    }
    return `{${parts.join(",")}}`;
  }

  /**
   * Stops a value that shares parts of itself without end. UTF-16 units are never more than UTF-8 bytes, and one comma
   * too many per container is less than twice the text, so nothing is stopped here that `toJsonText` would let pass.
   */
  #count(text: string): string {
    this.#written += text.length;
    if (this.#written > this.#maxBytes * 2) {
      this.#path.length = 0;
      this.#refuse(tooLong(this.#maxBytes));
    }
    return text;
  }

  #refuse(problem: string): never {
    throw new NotJson([...this.#path], problem);
  }
}

function unboxed(given: unknown, key: string): unknown {
  if (typeof given !== "object" || given === null) return given;
  const { toJSON } = given as { toJSON?: unknown };
  const value: unknown = typeof toJSON === "function" ? toJSON.call(given, key) : given;
  if (types.isBoxedPrimitive(value)) return (value as { valueOf(): unknown }).valueOf();
  return value;
}

/** Objects that `JSON.stringify` would turn into `{}` or into something that is not what they hold. */
function foreignKind(value: object): string | undefined {
  if (Array.isArray(value)) return undefined;
  if (types.isMap(value)) return "Map";
  if (types.isSet(value)) return "Set";
  if (types.isPromise(value)) return "Promise";
  if (types.isRegExp(value)) return "RegExp";
  if (types.isNativeError(value)) return "Error";
  if (types.isWeakMap(value)) return "WeakMap";
  if (types.isWeakSet(value)) return "WeakSet";
  if (types.isAnyArrayBuffer(value) || ArrayBuffer.isView(value)) return "binary buffer";
  return undefined;
}

/** RFC 8785: one text for one JSON value, whatever the order of its members. The value must come from JSON. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = value as Readonly<Record<string, unknown>>;
    const parts = Object.keys(members)
      .sort()
      .map((key) => `${JSON.stringify(key)}:${canonicalJson(members[key])}`);
    return `{${parts.join(",")}}`;
  }
  return JSON.stringify(value);
}

export function sha256Hex(text: string | Uint8Array): string {
  return createHash("sha256").update(text).digest("hex");
}

/** Freezes plain objects and arrays all the way down; other objects (a parsed Date, say) are left to themselves. */
export function deepFreeze<T>(value: T, seen: Set<unknown> = new Set()): T {
  if (typeof value !== "object" || value === null || seen.has(value)) return value;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (!Array.isArray(value) && prototype !== Object.prototype && prototype !== null) return value;
  seen.add(value);
  Object.freeze(value);
  for (const member of Object.values(value)) deepFreeze(member, seen);
  return value;
}

/** The longest beginning of `text` that takes at most `maxBytes` of UTF-8, made well-formed. */
export function cutToBytes(text: string, maxBytes: number): string {
  const wellFormed = LONE_SURROGATE.test(text) ? Buffer.from(text).toString() : text;
  const bytes = Buffer.from(wellFormed);
  if (bytes.length <= maxBytes) return wellFormed;
  let end = maxBytes;
  // Step back over continuation bytes, so that no character is cut in two.
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return bytes.subarray(0, end).toString();
}
