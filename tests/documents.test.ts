import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { environmentVariable, SETTINGS } from "../server/src/config.js";

const root = new URL("..", import.meta.url).pathname;
const read = (file: string): string => readFileSync(join(root, file), "utf8");
const pages = [
  "README.md",
  "AGENTS.md",
  "CONTRIBUTING.md",
  ...readdirSync(join(root, "docs"), { recursive: true }).map((name) => `docs/${String(name)}`),
].filter((name) => name.endsWith(".md"));

describe("the pages say what the files say", () => {
  test("every code block that names a file is that file", () => {
    let blocks = 0;
    for (const page of pages) {
      for (const [, file, code] of read(page).matchAll(/<!-- file: (\S+) -->\n```\w+\n([\s\S]*?)```/g)) {
        blocks++;
        expect(code, `${page} shows another ${file}; copy the file into the page`).toBe(read(file ?? ""));
      }
    }
    expect(blocks).toBeGreaterThan(0);
  });

  test.each(pages)("every link of %s to a file of this tree leads somewhere", (page) => {
    for (const [, target] of read(page).matchAll(/\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)/g)) {
      expect(existsSync(join(root, dirname(page), target ?? "")), `${page} links to ${target}`).toBe(true);
    }
  });

  test("every test that a page names by its file and title is there", () => {
    let named = 0;
    for (const page of pages) {
      for (const [, file, title] of read(page).matchAll(/`([\w./-]+\.test\.ts)`: \*([^*]+)\*/g)) {
        named++;
        expect(read(file ?? ""), `${page} names a test of ${file}`).toContain(title);
      }
    }
    expect(named).toBeGreaterThan(0);
  });

  test("every npm script that a page names exists", () => {
    const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
    for (const page of pages) {
      for (const [, script] of read(page).matchAll(/npm run ([a-z][a-z:-]*)/g)) {
        expect(scripts, `${page} names npm run ${script}`).toHaveProperty(script ?? "");
      }
    }
  });

  test("every flag that a page names is a flag of the server, and every environment variable belongs to one", () => {
    const flags = new Set(Object.values(SETTINGS).map(({ flag }) => flag));
    const variables = new Set([...flags].map((flag) => environmentVariable(flag)).concat("BRAIN_API_TOKEN", "BRAIN_URL"));
    for (const page of pages) {
      for (const [, flag] of read(page).matchAll(/brain serve[^\n`]*?--([a-z][a-z-]+)/g))
        if (flag !== "help") expect(flags, `${page}: --${flag}`).toContain(flag);
      for (const [variable] of read(page).matchAll(/\bBRAIN_[A-Z_]+\b/g)) expect(variables, page).toContain(variable);
    }
  });
});
