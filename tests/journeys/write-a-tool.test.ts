import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ServerProcess } from "../support/server-process.js";

const root = new URL("../..", import.meta.url).pathname;
const run = promisify(execFile);
/** Installing is the network's speed, and loading TypeScript that of a machine that does other things as well. */
const LONG_MS = 240_000;

let page: string;
let server: ServerProcess;
beforeAll(async () => {
  page = await readFile(join(root, "docs/write-a-tool.md"), "utf8");
  server = await ServerProcess.start();
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
});

/** The blocks of one language, in the order of the page. */
const blocks = (language: string): string[] =>
  [...page.matchAll(new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``, "g"))].map(([, block = ""]) => block);

describe("docs/write-a-tool.md", { timeout: LONG_MS }, () => {
  test("leads from an empty folder to a Tool that answers, by what it says and nothing else", async () => {
    const folder = await mkdtemp(join(tmpdir(), "my-tool-"));
    try {
      const [inRepository = "", inFolder = "", runIt = ""] = blocks("sh").map((block) => block.replaceAll("../my-tool", folder));
      const packing = inRepository.split("\n").filter((line) => line.includes("npm pack"));
      expect(packing).toHaveLength(1);
      expect(inRepository).toMatch(/^npx brain serve /m);
      const shell = (script: string, cwd: string) =>
        run("bash", ["-euo", "pipefail", "-c", script], {
          cwd,
          env: { ...process.env, BRAIN_URL: server.url, npm_config_audit: "false" },
          timeout: LONG_MS,
        });
      await shell(packing.join("\n"), root);
      await shell(inFolder, folder);
      const [code = ""] = blocks("ts");
      await writeFile(join(folder, "lookup.ts"), code);
      const { stdout, stderr } = await shell(runIt, folder);
      expect(stderr).toBe("");
      const [promised] = /It prints `([^`]+)`/.exec(page)?.slice(1) ?? [];
      expect(stdout).toBe(`${promised}\n`);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  test("shows what its longer example prints", async () => {
    const { stdout, stderr } = await run(process.execPath, ["--import", "tsx", "examples/booking.ts"], {
      cwd: root,
      env: { ...process.env, BRAIN_URL: server.url },
      timeout: LONG_MS,
    });
    expect(stderr).toBe("");
    expect(stdout).toBe(blocks("text")[0]);
  });

  test("shows four ways to write one Tool, which are one Tool", async () => {
    const { stdout, stderr } = await run(process.execPath, ["--import", "tsx", "examples/schemas.ts"], { cwd: root, timeout: LONG_MS });
    expect(stderr).toBe("");
    const [schema = "", ...ways] = stdout.trimEnd().split("\n");
    expect(JSON.parse(schema)).toMatchObject({ type: "object", required: ["name"] });
    expect(ways).toEqual(["true zod", "true Valibot", "true ArkType", "true plain JSON Schema"]);
  });
});
