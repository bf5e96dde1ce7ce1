import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Brain, hostEnv, tool } from "@aexhq/brain";
import { afterEach, expect, test } from "vitest";
import { z } from "zod";
import { expectLawful, kindsOf, recordsUntil } from "../support/case-ground.js";
import { ConnectJson } from "../support/connect-json.js";
import { ServerProcess } from "../support/server-process.js";

const PROGRAM = fileURLToPath(new URL("../../examples/plain-host.mjs", import.meta.url));
const TOKEN = "an-api-token";

const greet = tool({
  name: "greet",
  description: "Greets somebody.",
  input: z.object({ name: z.string(), ms: z.number().optional() }),
  run: (): never => {
    throw new Error("this process only places the Tool");
  },
});

let program: ChildProcess | undefined;
afterEach(() => {
  program?.kill("SIGKILL");
});

test("the host in the guide serves calls over a killed server, stops what is cancelled, and leaves when it is told to", async () => {
  await using first = await ServerProcess.start({ apiToken: TOKEN, flags: ["--heartbeat", "200ms", "--host-grace", "10s"] });
  program = spawn(process.execPath, [PROGRAM], {
    env: { ...process.env, BRAIN_URL: first.url, BRAIN_API_TOKEN: TOKEN },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const { stdout, stderr } = program;
  if (stdout === null || stderr === null) throw new Error("the program has no output");
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  const [, hostId = ""] = String((await lines.next()).value).split(" ");
  expect((await lines.next()).value).toBe("attached 1");

  await using brain = new Brain({ baseUrl: first.url, token: TOKEN });
  const session = await brain.sessions.create({ tools: [greet({ env: hostEnv({ name: "app", hostId }) })] });
  const call = { name: "greet", environment: "app" };
  expect(await session.callTool({ ...call, input: { name: "Ada" } })).toEqual({ status: "ok", value: { greeting: "Hello, Ada" } });

  const survives = session.callTool({ ...call, callId: "survives", input: { name: "Grace", ms: 1_000 } });
  // Its event says that it runs.
  await recordsUntil(session, ({ sequence, entry }) => sequence > 4 && entry.case === "eventEmitted");
  await first.stop("SIGKILL");
  await using second = await first.restart();
  expect(await survives).toEqual({ status: "ok", value: { greeting: "Hello, Grace" } });

  const cancelling = new AbortController();
  const cancelled = session.callTool({ ...call, input: { name: "Alan", ms: 60_000 }, signal: cancelling.signal });
  await recordsUntil(session, ({ sequence, entry }) => sequence > 7 && entry.case === "eventEmitted");
  cancelling.abort();
  expect(await cancelled).toMatchObject({ status: "cancelled" });
  // What the function makes of its abort is kept beside the ending.
  const records = await recordsUntil(session, ({ entry }) => entry.case === "toolCallLateOutcome");
  const one = ["toolCallStarted", "eventEmitted", "toolCallEnded"];
  expect(kindsOf(records)).toEqual([
    ...["sessionCreated", ...one, ...one, "toolCallStarted", "eventEmitted"],
    ...["toolCallCancelRequested", "toolCallEnded", "toolCallLateOutcome"],
  ]);
  expectLawful(records);

  const exited = once(program, "exit");
  program.kill("SIGTERM");
  expect(await exited).toEqual([0, null]);
  const { host } = await new ConnectJson(second.url, TOKEN).ask("HostService/GetHost", { hostId });
  expect(host.instances ?? []).toEqual([]);
});
