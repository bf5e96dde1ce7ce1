/**
 * The throw-away copies in which faults are planted.
 *
 * 1. The working tree is read once, at the beginning, and never written to. Every copy is made of that first one: what
 *    is changed in the tree meanwhile is in none of them.
 * 2. Only what a fault changes differs between a copy and the first one.
 * 3. What is installed and built is not copied but linked: the threads and processes that tests start run what was
 *    built, without the fault. A suite that is to notice a fault runs it in its own process.
 */
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { type Fault, planted } from "./fault.js";

const COPIED = ["server/src", "server/package.json", "sdk/src", "sdk/package.json", "tests", "package.json", "vitest.config.ts"];
const COPIED_FOR_THE_COMPILER = ["tsconfig.base.json", "tsconfig.json", "server/tsconfig.json", "sdk/tsconfig.json"];
const LINKED = ["gen", "proto", "server/bin", "server/dist", "sdk/dist"];
const INSTALLED = ["node_modules", "server/node_modules", "sdk/node_modules"];

export class Ground {
  readonly unchanged: string;
  readonly #root: string;

  constructor(tree: string) {
    this.#root = realpathSync(mkdtempSync(join(tmpdir(), "brain-mutants-")));
    this.unchanged = join(this.#root, "unchanged");
    for (const path of [...COPIED, ...COPIED_FOR_THE_COMPILER]) copy(join(tree, path), join(this.unchanged, path));
    for (const path of LINKED) link(join(tree, path), join(this.unchanged, path));
    for (const path of INSTALLED) linkEach(join(tree, path), join(this.unchanged, path));
  }

  /** A copy with the fault in it. @throws when one of its edits has no place, or several */
  plant(fault: Fault): string {
    const texts = new Map<string, string>();
    for (const edit of fault.edits) {
      const text = texts.get(edit.file) ?? readFileSync(join(this.unchanged, edit.file), "utf8");
      texts.set(edit.file, planted(text, edit));
    }
    const directory = join(this.#root, fault.name);
    cpSync(this.unchanged, directory, { recursive: true, verbatimSymlinks: true });
    for (const [file, text] of texts) writeFileSync(join(directory, file), text);
    return directory;
  }

  discard(directory: string): void {
    rmSync(directory, { recursive: true, force: true });
  }

  [Symbol.dispose](): void {
    rmSync(this.#root, { recursive: true, force: true });
  }
}

function copy(from: string, to: string): void {
  cpSync(from, to, { recursive: true, filter: (source) => !["dist", "node_modules"].includes(basename(source)) });
}

function link(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  symlinkSync(from, to);
}

/** A folder of its own, so that what the runner keeps there is not kept in the tree. */
function linkEach(from: string, to: string): void {
  let names: string[];
  try {
    names = readdirSync(from).filter((name) => !name.startsWith(".") || name === ".bin");
  } catch {
    // Where npm has put everything into one folder, the others are not there.
    return;
  }
  mkdirSync(to, { recursive: true });
  for (const name of names) symlinkSync(join(from, name), join(to, name));
}
