import { invalidArgument } from "./refusal.js";

/**
 * Names of Tools and Environments. ASCII only, so that two names that look alike are the same name, and
 * case-sensitive: `a` and `A` are two names.
 */
export const NAME_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;

/** @throws Refusal `invalid_argument` naming the field and the name. */
export function checkName(field: string, name: string): string {
  if (!NAME_PATTERN.test(name)) {
    throw invalidArgument(field, `${quote(name)} is not a name; use 1 to 64 of A-Z a-z 0-9 _ -`);
  }
  return name;
}

/** Keys that clients make up themselves: call_id, request_id, emit_id, instance_id. */
export function checkKey(field: string, key: string): string {
  if (key.length === 0) throw invalidArgument(field, "is empty; it must be 1 to 256 characters");
  if (key.length > 256) throw invalidArgument(field, `is ${key.length} characters; at most 256 are allowed`);
  // A control character in a key would break logs and listings; no client needs one.
  for (const character of key) {
    const code = character.codePointAt(0) ?? 0;
    if (code < 0x20 || code === 0x7f) throw invalidArgument(field, "has a control character; remove it");
  }
  return key;
}

/** A stranger's text inside a message: bounded, and safe for a log line. */
export function quote(text: string): string {
  const shown = text.length > 80 ? `${text.slice(0, 80)}...` : text;
  return JSON.stringify(shown);
}
