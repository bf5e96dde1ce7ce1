/** Starts a server on a free port with a temporary data directory, runs examples/host-tool.ts against it, and stops it. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const root = new URL("..", import.meta.url).pathname;
const dataDir = await mkdtemp(join(tmpdir(), "brain-demo-"));
const token = "demo-token";
const server = spawn(
  process.execPath,
  ["server/dist/main.js", "serve", "--listen", "127.0.0.1:0", "--data-dir", dataDir, "--log-level", "warn"],
  {
    cwd: root,
    env: { ...process.env, BRAIN_API_TOKEN: token },
    stdio: ["ignore", "pipe", "inherit"],
  },
);
try {
  const url = await listening(server);
  console.log(`brain listening on ${url}`);
  const example = spawn(process.execPath, ["--import", "tsx", "examples/host-tool.ts"], {
    cwd: root,
    env: { ...process.env, BRAIN_URL: url, BRAIN_API_TOKEN: token },
    stdio: "inherit",
  });
  process.exitCode = await ended(example);
} finally {
  server.kill("SIGTERM");
  const code = await ended(server);
  if (code !== 0) process.exitCode = code;
  await rm(dataDir, { recursive: true, force: true });
}

async function listening(child: ChildProcess): Promise<string> {
  if (child.stdout === null) throw new Error("the server has no stdout");
  for await (const line of createInterface({ input: child.stdout })) {
    const url = /^brain listening on (\S+)$/.exec(line)?.[1];
    if (url !== undefined) return url;
  }
  throw new Error("the server stopped before it listened; see its message above");
}

function ended(child: ChildProcess): Promise<number> {
  if (child.exitCode !== null) return Promise.resolve(child.exitCode);
  return new Promise((resolve) => child.once("exit", (code) => resolve(code ?? 1)));
}
