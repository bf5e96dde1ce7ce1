// A host made of nothing but fetch: what a program in any language does to hold functions for Brain. Start it beside a
// server: node examples/plain-host.mjs. The rules it follows are numbered in proto/brain/v1/host_service.proto.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const url = process.env.BRAIN_URL ?? "http://127.0.0.1:8080";

/** The Tools this process holds. */
const functions = {
  async greet({ name, ms = 0 }, { emit, signal }) {
    await emit("greeting", { name });
    await sleep(ms, undefined, { signal });
    return { greeting: `Hello, ${name}` };
  },
};

// Rule 1: a host is registered once and kept; an instance is one process, named anew each time.
let token = process.env.BRAIN_API_TOKEN ?? "";
const registered = process.env.HOST_ID
  ? { hostId: process.env.HOST_ID, hostToken: process.env.HOST_TOKEN }
  : await ask("RegisterHost", { displayName: "plain" });
const { hostId } = registered;
token = registered.hostToken;
const instanceId = randomUUID();

/** Rule 3: every call from the moment its command is read until the answer to its report. */
const held = new Map();
const heldCalls = () => ({ calls: [...held.values()].map(({ sessionId, callSequence }) => ({ sessionId, callSequence })) });
const callKey = ({ sessionId, callSequence }) => `${sessionId} ${callSequence}`;

/** One unary request, as JSON over HTTP. */
async function ask(rpc, message) {
  return await answer(await fetch(`${url}/brain.v1.HostService/${rpc}`, post(message)));
}

function post(message, more = {}) {
  const headers = { "Content-Type": "application/json", ...(token === "" ? {} : { Authorization: `Bearer ${token}` }) };
  return { method: "POST", headers, body: JSON.stringify(message), ...more };
}

async function answer(response) {
  const body = await response.json();
  if (response.ok) return body;
  const reason = body.details?.[0]?.debug?.reason ?? body.code;
  throw Object.assign(new Error(`${reason}: ${body.message}`), { reason });
}

/** Rules 6 and 7: repeated until it is answered, or refused in a way that repetition cannot change. */
const FOR_GOOD = ["call_ended", "call_not_found", "invalid_argument", "permission_denied", "request_too_large"];
async function untilAnswered(rpc, message) {
  for (let waitMs = 100; ; waitMs = Math.min(2 * waitMs, 5_000)) {
    try {
      return await ask(rpc, message);
    } catch (error) {
      if (FOR_GOOD.includes(error.reason)) throw error;
      await sleep(error.reason === "unauthenticated" ? 5_000 : waitMs * (0.5 + Math.random() / 2));
    }
  }
}

/** Rule 5: runs a call once, whatever becomes of the stream, and reports how it ended. */
async function run(command) {
  const { sessionId, callSequence, name, inputJson } = command;
  const stopping = new AbortController();
  held.set(callKey(command), { sessionId, callSequence, stopping });
  // Counted from here, on this process's own clock, which need not agree with the server's.
  const deadline = setTimeout(() => stopping.abort(), Math.min(Number.parseFloat(command.remaining) * 1_000, 2 ** 31 - 1));
  const emit = (kind, data) =>
    untilAnswered("EmitEvent", { sessionId, callSequence, kind, dataJson: JSON.stringify(data), emitId: randomUUID() });
  const outcome = await endingOf(functions[name], JSON.parse(inputJson), { emit, signal: stopping.signal }, command);
  clearTimeout(deadline);
  await untilAnswered("ReportOutcome", { sessionId, callSequence, outcome }).catch((error) => console.error(error.message));
  held.delete(callKey(command));
}

async function endingOf(run, input, context, { name, remaining }) {
  if (run === undefined) return { error: { code: "tool_not_served", message: `this process holds no function for ${name}` } };
  if (!(Number.parseFloat(remaining) > 0)) return { timeout: { code: "deadline_passed", message: "the time was over on arrival" } };
  try {
    return { ok: { valueJson: JSON.stringify((await run(input, context)) ?? null) } };
  } catch (error) {
    return { error: { code: "tool_error", message: String(error.message || error) } };
  }
}

/** The commands of a stream of server-sent events. */
async function* commandsOf(body) {
  let text = "";
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      if (data.length > 0 && !lines.includes("event: refusal")) yield JSON.parse(data.join("\n"));
    }
  }
}

// Rule 4: signs of life go out whatever else does, and silence on the stream ends it.
let stream = new AbortController();
let heartbeatMs = 5_000;
let heardMs = performance.now();
async function beat() {
  if (performance.now() - heardMs > 3 * heartbeatMs) stream.abort();
  const { ended = [] } = await ask("Heartbeat", { hostId, instanceId, heldCalls: heldCalls() }).catch(() => ({}));
  for (const call of ended) held.get(callKey(call))?.stopping.abort();
  beating = setTimeout(beat, heartbeatMs);
}
let beating = setTimeout(beat, heartbeatMs);

// Rule 9: what is not on the list of the Detach will never run, so nothing is read any more.
let generation = 0;
let leaving = false;
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, async () => {
    leaving = true;
    stream.abort();
    clearTimeout(beating);
    await ask("Detach", { hostId, instanceId, generation, heldCalls: heldCalls() }).catch((error) => console.error(error.message));
    process.exit();
  });
}

// Rule 2: each attempt has the next number, and its list is made when nothing is read any more.
console.log(`host ${hostId}`);
for (let waitMs = 100; !leaving; waitMs = Math.min(2 * waitMs, 5_000)) {
  let pauseMs = waitMs * (0.5 + Math.random() / 2);
  try {
    stream = new AbortController();
    const attachment = { instanceId, generation: ++generation, heldCalls: heldCalls() };
    const response = await fetch(`${url}/v1/hosts/${hostId}/commands`, post(attachment, { signal: stream.signal }));
    if (!response.ok) await answer(response);
    for await (const { attached, runTool, cancelCall } of commandsOf(response.body)) {
      if (leaving) break;
      heardMs = performance.now();
      if (attached !== undefined) {
        heartbeatMs = Number.parseFloat(attached.heartbeatInterval) * 1_000;
        waitMs = 100;
        for (const call of attached.ended ?? []) held.get(callKey(call))?.stopping.abort();
        console.log(`attached ${attached.generation}`);
      }
      if (runTool !== undefined && !held.has(callKey(runTool))) void run(runTool);
      if (cancelCall !== undefined) held.get(callKey(cancelCall))?.stopping.abort();
    }
  } catch (error) {
    if (error.reason === "unauthenticated") pauseMs = 5_000;
    if (!leaving) console.error(`the stream is down (${error.message}); functions go on, and it is tried again`);
  }
  heardMs = performance.now();
  if (!leaving) await sleep(pauseMs);
}
