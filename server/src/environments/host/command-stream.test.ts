import type { AttachResponse, Command } from "@aexhq/brain-proto";
import { DetachResponseSchema, HeartbeatSchema, RunToolSchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../config.js";
import { Refusal } from "../../core/refusal.js";
import { CommandStream } from "./command-stream.js";

const heartbeat = (): Command["kind"] => ({ case: "heartbeat", value: create(HeartbeatSchema) });
const runTool = (callSequence: number, inputJson = "{}"): Command["kind"] => ({
  case: "runTool",
  value: create(RunToolSchema, { sessionId: "s", callSequence, inputJson }),
});

/** What a message is, in one word or two. */
function name({ message, answersMessageId }: AttachResponse): string {
  const what = message.case === "command" ? message.value.kind : message;
  const which = what.case === "runTool" ? ` ${what.value.callSequence}` : "";
  return `${what.case}${which}${answersMessageId === undefined ? "" : ` to ${answersMessageId}`}`;
}

async function readAll(stream: CommandStream): Promise<string[]> {
  const read: string[] = [];
  for await (const message of stream) read.push(name(message));
  return read;
}

function openStream(): { stream: CommandStream; gone: () => number } {
  let gone = 0;
  const stream = new CommandStream(() => gone++);
  return { stream, gone: () => gone };
}

describe("a command stream", () => {
  it("gives what was pushed in its order, each once, before and while it is read", async () => {
    const { stream } = openStream();
    stream.command(runTool(1));
    stream.command(runTool(2));
    const reading = readAll(stream);
    stream.command(heartbeat());
    await Promise.resolve();
    stream.push({ case: "detach", value: create(DetachResponseSchema) }, { answers: 7 });
    stream.finish();
    expect(await reading).toEqual(["runTool 1", "runTool 2", "heartbeat", "detach to 7"]);
  });

  it("that is to end still gives the answer to what ends it when its reader asks in between", async () => {
    const { stream } = openStream();
    const reader = stream[Symbol.asyncIterator]();
    stream.command(heartbeat());
    await reader.next();
    stream.finish();
    const next = reader.next();
    await Promise.resolve();
    stream.push({ case: "detach", value: create(DetachResponseSchema) }, { answers: 7 });
    const step = await next;
    expect(step.done === true ? "ended" : name(step.value)).toBe("detach to 7");
    expect(await reader.next()).toEqual({ done: true, value: undefined });
    expect(stream.open).toBe(false);
  });

  it("that is closed drops what nobody took, says of each command that it was not written, and takes no more", async () => {
    const { stream, gone } = openStream();
    const unwritten: number[] = [];
    for (const callSequence of [1, 2, 3]) stream.command(runTool(callSequence), () => unwritten.push(callSequence));
    const reader = stream[Symbol.asyncIterator]();
    await reader.next();
    stream.close();
    expect(unwritten).toEqual([2, 3]);
    expect(await reader.next()).toEqual({ done: true, value: undefined });
    expect(stream.command(heartbeat())).toBe(false);
    expect(stream.open).toBe(false);
    stream.close();
    expect(gone()).toBe(1);
  });

  it("that is closed with a refusal tells its reader why", async () => {
    const { stream } = openStream();
    const reading = readAll(stream);
    stream.close(new Refusal("attach_superseded", "attached again"));
    await expect(reading).rejects.toMatchObject({ reason: "attach_superseded" });
  });

  it("is closed by the reader that leaves", async () => {
    const { stream, gone } = openStream();
    const unwritten: number[] = [];
    stream.command(runTool(1), () => unwritten.push(1));
    stream.command(runTool(2), () => unwritten.push(2));
    for await (const message of stream) {
      expect(name(message)).toBe("runTool 1");
      break;
    }
    expect([stream.open, gone()]).toEqual([false, 1]);
    expect(unwritten).toEqual([2]);
  });

  it("whose reader lags behind by too many messages is closed as stream_too_slow", async () => {
    const { stream } = openStream();
    let unwritten = 0;
    for (let pushed = 0; pushed < LIMITS.streamBacklogMessages; pushed++) expect(stream.command(heartbeat(), () => unwritten++)).toBe(true);
    expect(stream.command(heartbeat(), () => unwritten++)).toBe(false);
    // What was refused was never pushed; the caller knows by the answer.
    expect(unwritten).toBe(LIMITS.streamBacklogMessages);
    await expect(readAll(stream)).rejects.toMatchObject({ reason: "stream_too_slow" });
  });

  it("whose reader lags behind by too many bytes is closed as stream_too_slow, and one that reads is not", async () => {
    const large = runTool(1, JSON.stringify("x".repeat(500_000)));
    const { stream: lagging } = openStream();
    const { stream: read } = openStream();
    const reader = read[Symbol.asyncIterator]();
    let pushed = 0;
    while (lagging.command(large)) pushed++;
    expect(pushed).toBeLessThan(100);
    for (let round = 0; round < 100; round++) {
      expect(read.command(large)).toBe(true);
      await reader.next();
    }
    await expect(readAll(lagging)).rejects.toMatchObject({ reason: "stream_too_slow" });
  });

  it("takes commands back that nobody took, and keeps the rest", async () => {
    const { stream } = openStream();
    const unwritten: number[] = [];
    stream.command(runTool(1), () => unwritten.push(1));
    stream.command(heartbeat());
    stream.command(runTool(2), () => unwritten.push(2));
    stream.withdraw();
    expect(unwritten).toEqual([1, 2]);
    stream.finish();
    expect(await readAll(stream)).toEqual(["heartbeat"]);
    expect(unwritten).toEqual([1, 2]);
  });
});

describe("a command stream that finishes", () => {
  it("still gives the answer that is pushed in the same turn, and then ends", async () => {
    const { stream, gone } = openStream();
    const reading = readAll(stream);
    stream.finish();
    await Promise.resolve();
    expect(stream.push({ case: "detach", value: create(DetachResponseSchema) }, { answers: 3 })).toBe(true);
    stream.finish();
    expect(await reading).toEqual(["detach to 3"]);
    expect([stream.open, gone()]).toEqual([false, 1]);
  });

  it("takes no more commands", async () => {
    const { stream } = openStream();
    stream.command(runTool(1));
    stream.finish();
    expect(stream.command(runTool(2))).toBe(false);
    expect(await readAll(stream)).toEqual(["runTool 1"]);
  });

  it("ends by itself when nothing is left", async () => {
    const { stream } = openStream();
    stream.finish();
    expect(await readAll(stream)).toEqual([]);
    expect(stream.open).toBe(false);
  });
});
