import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { HostProcess } from "../support/host-process.js";
import { selfSigned } from "../support/self-signed.js";
import { ServerProcess } from "../support/server-process.js";

const PROGRAM = new URL("../support/tls-program.ts", import.meta.url);
const TOKEN = "an-api-token";

let folder: string;
let server: ServerProcess;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "brain-tls-"));
  const { cert, key } = selfSigned();
  writeFileSync(join(folder, "cert.pem"), cert);
  writeFileSync(join(folder, "key.pem"), key, { mode: 0o600 });
  const flags = ["--tls-cert", join(folder, "cert.pem"), "--tls-key", join(folder, "key.pem")];
  server = await ServerProcess.start({ apiToken: TOKEN, flags });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

test("a process that is told of the server's own CA by NODE_EXTRA_CA_CERTS calls and serves over every route", async () => {
  expect(server.url).toMatch(/^https:/);
  const environment = { BRAIN_URL: server.url, BRAIN_TOKEN: TOKEN, NODE_EXTRA_CA_CERTS: join(folder, "cert.pem") };
  await using program = new HostProcess(PROGRAM, environment);
  for (const route of ["attach", "watch", "sse", "auto"]) expect(await program.line()).toBe(`ok hello over ${route}`);
  expect(await program.exitCode()).toBe(0);
  expect(program.stderr).toEqual([]);
});

test("a process that does not know the CA is told what is wrong with the certificate", async () => {
  await using program = new HostProcess(PROGRAM, { BRAIN_URL: server.url, BRAIN_TOKEN: TOKEN });
  expect(await program.line()).toMatch(/^unavailable Brain at https:.* did not answer: .*self-signed certificate/);
});
