import { once } from "node:events";
import * as http from "node:http";
import type { AddressInfo } from "node:net";
import { HeartbeatRequestSchema, HeartbeatResponseSchema } from "@aexhq/brain-proto";
import { create, toBinary } from "@bufbuild/protobuf";
import { afterEach, beforeEach, expect, test } from "vitest";
import { UnaryAnswers } from "./unary.js";

/** A server of which some requests are never heard of again: it says nothing and ends nothing. */
let server: http.Server;
let answers: UnaryAnswers;
let isSilent: (nth: number) => boolean;
let asked: number;
let waits: Promise<void>[];

beforeEach(async () => {
  asked = 0;
  waits = [];
  isSilent = () => false;
  server = http.createServer((request, response) => {
    asked++;
    waits.push(new Promise((resolve) => request.socket.once("close", resolve)));
    if (isSilent(asked)) return;
    response.setHeader("Content-Type", "application/proto");
    request.resume().on("end", () => response.end(toBinary(HeartbeatResponseSchema, create(HeartbeatResponseSchema))));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  answers = new UnaryAnswers({ baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, token: undefined }, "binary");
});

afterEach(() => {
  answers.close();
  server.closeAllConnections();
  server.close();
});

const beat = (): Promise<unknown> => answers.heartbeat(create(HeartbeatRequestSchema, { hostId: "h", instanceId: "i" }));

test("a request that is not answered in time is given up with its connection, and its repeat is answered on another", async () => {
  answers.hangUpAfter(300);
  isSilent = (nth) => nth === 1;
  await expect(beat()).rejects.toMatchObject({ reason: "unavailable", message: expect.stringContaining("did not answer within 300 ms") });
  await waits[0];
  await expect(beat()).resolves.toBeDefined();
  expect(asked).toBe(2);
});

test("every request that was given up gives the next one twice the time, until one is answered", async () => {
  answers.hangUpAfter(250);
  isSilent = (nth) => nth !== 3;
  await expect(beat()).rejects.toThrow("within 250 ms");
  await expect(beat()).rejects.toThrow("within 500 ms");
  await beat();
  await expect(beat()).rejects.toThrow("within 250 ms");
});

test("one that is open when everything is closed is told that, not that it was given up", async () => {
  answers.hangUpAfter(60_000);
  isSilent = () => true;
  const beating = beat();
  await once(server, "request");
  answers.close();
  await expect(beating).rejects.toMatchObject({ reason: "closed" });
});
