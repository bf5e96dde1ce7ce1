/**
 * The two vocabularies, the page that explains them and the code that speaks them are one: what one has, all have.
 */

import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Code } from "@connectrpc/connect";
import { describe, expect, it } from "vitest";
import { refusalToConnectError } from "../rpc/connect-error.js";
import { FAILURE_CODES, REFUSAL_REASONS } from "./codes.js";
import { Refusal } from "./refusal.js";

const ROOT = new URL("../../../", import.meta.url);

interface Source {
  readonly path: string;
  readonly text: string;
}

/** The code of a package, without its tests and without the files that are the lists themselves. */
function sources(room: string): Source[] {
  const directory = fileURLToPath(new URL(room, ROOT));
  return readdirSync(directory, { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts") && path !== "core/codes.ts" && path !== "rpc/connect-error.ts")
    .map((path) => ({ path, text: readFileSync(`${directory}/${path}`, "utf8") }));
}

/** The arguments of each call of `name` in a source, as they are written. */
function callsOf(name: string, { text, path }: Source): string[][] {
  const calls: string[][] = [];
  for (let at = text.indexOf(`${name}(`); at !== -1; at = text.indexOf(`${name}(`, at + 1)) {
    if (/[\w.#]$|function $/.test(text.slice(Math.max(0, at - 9), at))) continue;
    const end = endOf(text, at + name.length);
    if (end === undefined) throw new Error(`${path}: ${name} at ${at} does not end`);
    calls.push(split(text.slice(at + name.length + 1, end)));
  }
  return calls;
}

/** The place of the bracket or quote that closes the one at `open`. */
function endOf(text: string, open: number): number | undefined {
  const opener = text[open] ?? "";
  const closer = { "(": ")", "[": "]", "{": "}" }[opener] ?? opener;
  for (let at = open + 1; at < text.length; at++) {
    const character = text[at] ?? "";
    if (character === "\\") at++;
    else if (character === closer) return at;
    else {
      const quoted = closer === "'" || closer === '"';
      const opens = closer === "`" ? text.startsWith("${", at) : !quoted && /["'`([{]/.test(character);
      if (opens) at = endOf(text, closer === "`" ? at + 1 : at) ?? text.length;
    }
  }
  return undefined;
}

/** Parts of a list that are set apart by commas of its own. */
function split(list: string): string[] {
  const parts: string[] = [];
  let from = 0;
  for (let at = 0; at < list.length; at++) {
    if (/["'`([{]/.test(list[at] ?? "")) at = endOf(list, at) ?? list.length;
    else if (list[at] === ",") {
      parts.push(list.slice(from, at));
      from = at + 1;
    }
  }
  return [...parts, list.slice(from)].map((part) => part.trim()).filter((part) => part !== "");
}

function literals(text: string | undefined): string[] {
  return [...(text ?? "").matchAll(/"([a-z_]+)"/g)].map((match) => match[1] ?? "");
}

function keysOf(record: string | undefined): string[] {
  if (record === undefined || !record.startsWith("{")) return [];
  return split(record.slice(1, -1)).map((member) => /^(\w+)/.exec(member)?.[1] ?? member);
}

/** Rows of the table under a heading of the page, by its first column; a cell's marks are left away. */
function table(heading: string): Map<string, string[]> {
  const page = readFileSync(fileURLToPath(new URL("docs/errors.md", ROOT)), "utf8");
  const [, section = ""] = page.split(`\n## ${heading}\n`);
  const rows = (section.split("\n## ")[0] ?? "")
    .split("\n")
    .filter((line) => line.startsWith("| `"))
    .map((line) =>
      line
        .slice(1, -1)
        .split("|")
        .map((cell) => cell.trim()),
    );
  const byWord = new Map(rows.map(([word = "", ...cells]) => [word.replaceAll("`", ""), cells]));
  expect(byWord.size, "each word has one row").toBe(rows.length);
  return byWord;
}

const server = sources("server/src");
const sdk = sources("sdk/src");
const reasons = table("Refused requests");
const codes = table("Failed calls");

describe.each([
  ["refusal reasons", REFUSAL_REASONS, reasons],
  ["failure codes", FAILURE_CODES, codes],
] as const)("the list of %s", (_, list, page) => {
  it("is of lower_snake words, sorted, each once", () => {
    for (const word of list) expect(word).toMatch(/^[a-z]+(_[a-z]+)*$/);
    expect([...list]).toEqual([...new Set(list)].sort());
  });

  it("is the page's list, in its order", () => {
    expect([...page.keys()]).toEqual([...list]);
  });

  it("is explained on the page, every cell of it", () => {
    for (const [word, cells] of page) for (const cell of cells) expect(cell, word).not.toBe("");
  });
});

describe("every refusal reason", () => {
  it("has on the page the Connect code it has on the wire", () => {
    const wire = REFUSAL_REASONS.map((reason) => [reason, Code[refusalToConnectError(new Refusal(reason, "")).code]]);
    expect([...reasons].map(([reason, [code]]) => [reason, code])).toEqual(wire);
  });

  it("is given by some line of the server, and no line gives another", () => {
    const used = server.flatMap((source) =>
      [...callsOf("new Refusal", source), ...callsOf("refuse", source)].flatMap(([reason]) => literals(reason)),
    );
    expect([...new Set(used)].sort()).toEqual([...REFUSAL_REASONS]);
  });

  it("carries the metadata that the page says, and no other", () => {
    const carried = new Map<string, Set<string>>(REFUSAL_REASONS.map((reason) => [reason, new Set()]));
    for (const [reason, , metadata] of server.flatMap((source) => callsOf("new Refusal", source))) {
      for (const word of literals(reason)) for (const key of keysOf(metadata)) carried.get(word)?.add(key);
    }
    const said = [...reasons].map(([reason, cells]) => [
      reason,
      [...(cells[1] ?? "").matchAll(/`(\w+)`/g)].map((match) => match[1]).sort(),
    ]);
    expect(said).toEqual([...carried].map(([reason, keys]) => [reason, [...keys].sort()]));
  });
});

describe("every failure code", () => {
  const brains = server.flatMap((source) =>
    [...callsOf("failure", source), ...callsOf("failureOf", source)].flatMap((call) => call.slice(0, 2).flatMap(literals)),
  );
  const hosts = sdk
    .filter(({ path }) => path.startsWith("host"))
    .flatMap((source) => [
      ...callsOf("wireFailure", source).flatMap(([, failure]) => literals(/\bcode: ([^,}]+)/.exec(failure ?? "")?.[1])),
      ...[...source.text.matchAll(/#violated\(("[a-z_]+")/g)].flatMap((match) => literals(match[1])),
    ]);

  it("is written by Brain or by the SDK's host, and neither writes another", () => {
    const written = [...new Set([...brains, ...hosts])].filter((word) => word !== "closing").sort();
    // What the SDK's host says of a call that has ended in a way it was not told.
    expect([...written, "call_ended"].sort()).toEqual([...FAILURE_CODES]);
  });

  it("says on the page which endings carry it, in the words of an Outcome", () => {
    for (const [code, [status]] of codes)
      expect(status, code).toMatch(/^(error|timeout|cancelled|unknown)(, (error|timeout|cancelled|unknown))*$/);
  });
});
