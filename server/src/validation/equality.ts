import type { Ajv } from "ajv";
import { canonicalJson } from "../core/json.js";

/**
 * The keywords that compare values, in place of the library's own.
 *
 * 1. Linear in the value: the library compares all pairs for `uniqueItems` over objects, seconds for 16,000 items.
 * 2. Members named `constructor`, `valueOf` or `toString` are data: the library's comparison asks them as if they
 *    were inherited, so that `{"valueOf":1}` makes it throw.
 * 3. `multipleOf` is exact for the decimal numbers that JSON text shows: 19.99 is a multiple of 0.01.
 */
export function useOwnEquality(ajv: Ajv): void {
  for (const keyword of ["const", "enum", "uniqueItems", "multipleOf"]) ajv.removeKeyword(keyword);
  ajv.addKeyword({
    keyword: "const",
    errors: false,
    compile: (wanted: unknown) => {
      const same = oneOf([wanted]);
      return (value: unknown) => same(value);
    },
  });
  ajv.addKeyword({
    keyword: "enum",
    schemaType: "array",
    errors: false,
    compile: (allowed: readonly unknown[]) => {
      const listed = oneOf(allowed);
      return (value: unknown) => listed(value);
    },
  });
  ajv.addKeyword({
    keyword: "uniqueItems",
    type: "array",
    schemaType: "boolean",
    errors: false,
    compile: (wanted: boolean) => (items: readonly unknown[]) => !wanted || duplicateOf(items) === undefined,
  });
  ajv.addKeyword({
    keyword: "multipleOf",
    type: "number",
    schemaType: "number",
    errors: false,
    compile: (divisor: number) => (value: number) => isMultiple(value, divisor),
  });
}

/** The indexes of the first two equal items. */
export function duplicateOf(items: readonly unknown[]): readonly [number, number] | undefined {
  const seen = new Map<unknown, number>();
  // Objects and strings must not meet in one map: a string may read like an object's canonical text.
  const seenObjects = new Map<string, number>();
  for (const [index, item] of items.entries()) {
    const earlier = isObject(item) ? meet(seenObjects, canonicalJson(item), index) : meet(seen, item, index);
    if (earlier !== undefined) return [earlier, index];
  }
  return undefined;
}

function meet<Key>(seen: Map<Key, number>, key: Key, index: number): number | undefined {
  const earlier = seen.get(key);
  if (earlier === undefined) seen.set(key, index);
  return earlier;
}

function oneOf(allowed: readonly unknown[]): (value: unknown) => boolean {
  // A Set holds 0 and -0 to be one, as JSON does.
  const scalars = new Set(allowed.filter((value) => !isObject(value)));
  const objects = new Set(allowed.filter(isObject).map(canonicalJson));
  return (value) => (isObject(value) ? objects.size > 0 && objects.has(canonicalJson(value)) : scalars.has(value));
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

function isMultiple(value: number, divisor: number): boolean {
  if (divisor === 0) return false;
  if (Number.isSafeInteger(value) && Number.isSafeInteger(divisor)) return value % divisor === 0;
  const [digits, exponent] = decimal(value);
  const [divisorDigits, divisorExponent] = decimal(divisor);
  const shift = exponent - divisorExponent;
  return shift >= 0 ? (digits * 10n ** BigInt(shift)) % divisorDigits === 0n : digits % (divisorDigits * 10n ** BigInt(-shift)) === 0n;
}

/** `digits × 10^exponent`, as ECMAScript writes the number. */
function decimal(value: number): [bigint, number] {
  const [mantissa = "0", exponent = "0"] = value.toExponential().split("e");
  const [whole = "0", fraction = ""] = mantissa.split(".");
  return [BigInt(whole + fraction), Number(exponent) - fraction.length];
}
