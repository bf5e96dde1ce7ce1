import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hostEnv, type Session } from "@aexhq/brain";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { CaseGround, expectLawful, kindsOf } from "../support/case-ground.js";
import { CaseHost } from "../support/case-host.js";
import { ConnectJson } from "../support/connect-json.js";
import { type HttpCut, HttpRelay } from "../support/http-relay.js";
import { ServerProcess } from "../support/server-process.js";

const WAIT = { timeout: 15_000, interval: 20 };

let ground: CaseGround;
let wire: ConnectJson;
let folder: string;
let relay: HttpRelay;
let host: CaseHost;
beforeAll(async () => {
  ground = await CaseGround.open({ flags: ["--heartbeat", "200ms", "--host-grace", "20s"] });
  wire = new ConnectJson(ground.server.url, ground.token);
});
afterAll(async () => {
  await ground[Symbol.asyncDispose]();
});
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "brain-case-hosts-"));
  writeFileSync(join(folder, "runs"), "");
});
afterEach(async () => {
  await host[Symbol.asyncDispose]();
  expect(host.stderr).toEqual([]);
  await relay[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

/** A host behind a relay of its own. */
async function startHost(hostRoute: "attach" | "watch" | "sse", at: ConnectJson): Promise<string> {
  relay = await HttpRelay.open(hostRoute === "attach" ? 2 : 1);
  relay.forwardTo(at.url);
  const { hostId, hostToken } = await at.ask("HostService/RegisterHost", { displayName: hostRoute });
  const credentials = { hostId, hostToken };
  host = await CaseHost.start({ url: relay.url, token: ground.token, counterFile: join(folder, "runs"), hostRoute, credentials });
  return hostId;
}

async function begin(hostRoute: "attach" | "watch" | "sse"): Promise<Session> {
  const hostId = await startHost(hostRoute, wire);
  return await ground.caller.sessions.create({ tools: [ground.tools.plain({ env: hostEnv({ name: "app", hostId }) })] });
}

const runs = (): string[] => readFileSync(join(folder, "runs"), "utf8").split("\n").filter(Boolean);

/** The generation of the host's one instance, once it is attached with one above `above`. */
async function attachedAbove(above: number, at = wire): Promise<number> {
  return await vi.waitFor(async () => {
    const { host: known } = await at.ask("HostService/GetHost", { hostId: host.hostId });
    const [instance] = known.instances ?? [];
    expect(instance).toMatchObject({ state: "INSTANCE_STATE_ATTACHED" });
    expect(instance.generation).toBeGreaterThan(above);
    return instance.generation as number;
  }, WAIT);
}

async function expectCallRuns(session: Session, input: string): Promise<void> {
  const before = runs().length;
  expect(await session.callTool({ name: "plain", environment: "app", input })).toEqual({ status: "ok", value: input });
  expect(runs().length - before, "runs of one call").toBe(1);
}

const ways: [route: "attach" | "watch" | "sse", cuts: HttpCut[]][] = [
  ["attach", ["rst", "goaway", "reset", "end"]],
  ["watch", ["reset", "end"]],
  ["sse", ["reset", "end"]],
];

describe.each(ways)("H26: an idle host on the route %s", (route, cuts) => {
  test(`comes back by itself when its stream is cut (${cuts.join(", ")}), and runs the next call once`, async () => {
    const session = await begin(route);
    let generation = await attachedAbove(0);
    for (const how of cuts) {
      relay.cut(how);
      generation = await attachedAbove(generation);
      await expectCallRuns(session, how);
    }
    expect(kindsOf(await ground.records(session)).slice(1)).toEqual(cuts.flatMap(() => ["toolCallStarted", "toolCallEnded"]));
    await ground.expectStanding(session);
  });

  test("comes back to a Brain that was gone for seconds, with growing waits that are not in step, and only a close ends it", async () => {
    const session = await begin(route);
    await attachedAbove(0);
    relay.forwardTo(undefined);
    relay.cut("reset");
    await ground.server.stop("SIGKILL");
    const first = relay.askedMs.length;
    // The sixth attempt comes after some 2 s.
    await vi.waitFor(() => expect(relay.askedMs.length - first).toBeGreaterThanOrEqual(6), WAIT);
    const attempts = relay.askedMs.slice(first);
    const gaps = attempts.slice(1).map((atMs, index) => atMs - (attempts[index] ?? 0));
    // Heartbeats and reports aside, an idle host makes one connection an attempt.
    const [shortest = 0, longest = 0] = [Math.min(...gaps), Math.max(...gaps)];
    expect(shortest, `gaps ${gaps.map(Math.round).join(", ")}`).toBeGreaterThanOrEqual(45);
    expect(longest, `gaps ${gaps.map(Math.round).join(", ")}`).toBeGreaterThanOrEqual(800);
    ground.server = await ground.server.restart();
    relay.forwardTo(ground.server.url);
    await attachedAbove(0);
    await expectCallRuns(session, "back");
    expectLawful(await ground.records(session));
    await ground.expectStanding(session);

    await attachedAbove(0);
    const { code, ms } = await host.leave();
    expect([code, ms < 2_000]).toEqual([0, true]);
    const { length } = relay.askedMs;
    const { host: known } = await wire.ask("HostService/GetHost", { hostId: host.hostId });
    expect(known.instances ?? []).toEqual([]);
    expect(relay.askedMs).toHaveLength(length);
  });
});

describe("H26: a host whose token is revoked while it is away", () => {
  test.each(["attach", "sse"] as const)("says so, and asks once in 3 s at most, on the route %s", async (route) => {
    await using server = await ServerProcess.start({ apiToken: ground.token, flags: ["--heartbeat", "100ms", "--host-grace", "500ms"] });
    const at = new ConnectJson(server.url, ground.token);
    await startHost(route, at);
    await attachedAbove(0, at);
    relay.forwardTo(undefined);
    relay.cut("reset");
    // Once its grace is over it is nobody's, and can be deleted.
    await vi.waitFor(async () => {
      const { httpStatus } = await at.post("HostService/DeleteHost", { hostId: host.hostId });
      expect(httpStatus).toBe(200);
    }, WAIT);
    relay.forwardTo(server.url);
    const refused = await vi.waitFor(async () => {
      const found = host.logLines.find((line) => line.includes("Brain refused this host"));
      if (found === undefined) throw new Error("nothing was said yet");
      return found;
    }, WAIT);
    expect(refused).toContain("unauthenticated");
    const sinceRefused = relay.askedMs.length;
    const lastMs = relay.askedMs.at(-1) ?? 0;
    await vi.waitFor(() => expect(relay.askedMs.length).toBeGreaterThan(sinceRefused), WAIT);
    expect((relay.askedMs[sinceRefused] ?? 0) - lastMs).toBeGreaterThanOrEqual(2_950);
    expect(host.logLines.filter((line) => line.includes("Brain refused this host"))).toHaveLength(1);
    expect(host.alive).toBe(true);
    expect((await host.leave(100)).code).toBe(0);
  });
});
