/** One round: real processes, a bad network, kills, and callers that want their answers. Yields the evidence of it. */
import { setMaxListeners } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import * as http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as after } from "node:timers/promises";
import { HostService } from "@aexhq/brain-proto";
import { createClient } from "@connectrpc/connect";
import { Brain } from "../../sdk/src/client.js";
import { hostEnv } from "../../sdk/src/environments.js";
import type { HostCredentials } from "../../sdk/src/host.js";
import { checkJournal } from "../../server/src/journal/check-journal.js";
import { Caller, insist, transport } from "./caller.js";
import type { Answer, AskedCall, Evidence, Happening, ProcessLife } from "./evidence.js";
import { readRecords } from "./journal-records.js";
import { HostKeeper, type Keeping, ServerKeeper } from "./keepers.js";
import { CHAOS_MS, type Plan, type PlannedFault, TIMES } from "./plan.js";
import type { SparePrograms } from "./program.js";
import { type Cut, Relay } from "./relay.js";
import { watchStalls } from "./stalls.js";
import { readWitness, Witness } from "./witness.js";
import { workTool } from "./work-tool.js";

const API_TOKEN = "torture-api-token";
/** Everything a round waits for is waited for this long; on a quiet machine it takes a tenth of it. */
const PATIENCE_MS = 25_000;
const FIRST_ATTACH_MS = 1_500;

export interface RoundOptions {
  readonly plan: Plan;
  readonly spares: SparePrograms;
  /** Whether the SDK knows file outboxes. */
  readonly outboxes: boolean;
  /** Keeps the round's directory for a look at it. */
  readonly keep: boolean;
}

export async function runRound({ plan, spares, outboxes, keep }: RoundOptions): Promise<Evidence & { readonly directory: string }> {
  const directory = await mkdtemp(join(tmpdir(), "brain-torture-"));
  const startedAt = Date.now();
  const log: Happening[] = [];
  const lives: ProcessLife[] = [];
  const answers: Answer[] = [];
  const complaints: { callId?: string; what: string }[] = [];
  const cuts: Record<string, number> = {};
  const keeping: Keeping = {
    spares,
    witnessFile: join(directory, "witness"),
    apiToken: API_TOKEN,
    restartAfterMs: plan.restartAfterMs,
    lives,
    log: (what) => log.push({ at: Date.now(), what }),
    complain: (what) => complaints.push({ what }),
  };
  const own = new Witness(keeping.witnessFile, "harness");
  const stopWatching = watchStalls(own);
  const relays = await Relay.openRow(plan.places.length + 1);
  const callerRelay = relays.at(-1) as Relay;
  const linkOf = (link: number): Relay => relays[link] ?? callerRelay;
  const server = new ServerKeeper(keeping, { flags: flagsOf(plan, directory, callerRelay), kills: plan.serverKills }, relays);
  const brain = new Brain({ baseUrl: callerRelay.url, token: API_TOKEN, log: () => undefined });
  const caller = new Caller(callerRelay.url, API_TOKEN, brain, {
    answered: (answer) => answers.push(answer),
    complained: (callId, what) => complaints.push({ callId, what }),
  });
  const hosts: HostKeeper[] = [];
  const givenUp = new AbortController();
  // Every caller of the round listens to it.
  setMaxListeners(0, givenUp.signal);
  const timers: NodeJS.Timeout[] = [];
  const calls: AskedCall[] = [];
  try {
    await server.start();
    const { credentials, sessionIds } = await prepare(plan, callerRelay, brain);
    for (const [place, planned] of plan.places.entries()) {
      const relay = linkOf(place);
      const { outbox, ...seat } = planned;
      const file = outboxes && outbox ? { outbox: join(directory, `outbox-${place}`) } : {};
      hosts.push(new HostKeeper(keeping, place, { ...seat, ...file, baseUrl: relay.url, ...credentials[planned.environment] }));
    }
    const attached = Promise.all(hosts.map((host) => host.start()));
    await Promise.race([attached, after(FIRST_ATTACH_MS)]);

    const inject = (fault: PlannedFault): void => injectFault(fault, { server, hosts, linkOf, timers, cuts, log: keeping.log });
    for (const fault of plan.faults) timers.push(setTimeout(() => inject(fault), fault.atMs));
    const patience = setTimeout(() => givenUp.abort(), PATIENCE_MS);
    timers.push(patience);
    const calling = plan.calls.map(async (planned) => {
      await after(planned.atMs);
      const call = { ...planned, sessionId: sessionIds[planned.session] ?? "", firstAskedAt: Date.now(), cancelAskedAt: undefined };
      calls.push(call);
      await caller.call(call, givenUp.signal);
    });
    await after(CHAOS_MS);
    for (const relay of relays) {
      relay.thaw();
      relay.slow(0);
    }
    keeping.log("the network is well again");
    await Promise.all(calling);
    for (const host of hosts) await host.leave(PATIENCE_MS);
    await server.leave(PATIENCE_MS);
  } finally {
    stopWatching();
    own.close();
    for (const timer of timers) clearTimeout(timer);
    givenUp.abort();
    caller.close();
    await brain.close({ withinMs: 0 });
    await Promise.all([...hosts, server].map((keeper) => keeper[Symbol.asyncDispose]()));
    await Promise.all(relays.map((relay) => relay[Symbol.asyncDispose]()));
  }
  const journalFile = join(directory, "data", "journal.sqlite3");
  const witnessed = readWitness(keeping.witnessFile);
  for (const line of witnessed) {
    const life = line.what === "killed" ? lives.find(({ name }) => name === line.by) : undefined;
    if (line.what === "killed" && life !== undefined) Object.assign(life, { killedAt: line.at, killedBy: line.point });
  }
  const evidence = {
    ...{ plan, startedAt, calls, answers, log, cuts, lives, witnessed, complaints, directory },
    journalProblems: checkJournal(journalFile),
    records: readRecords(journalFile),
  };
  if (!keep) await rm(directory, { recursive: true, force: true });
  return evidence;
}

function flagsOf(plan: Plan, directory: string, relay: Relay): Record<string, string> {
  return {
    dataDir: join(directory, "data"),
    publicUrl: relay.url,
    heartbeatMs: `${TIMES.heartbeatMs}ms`,
    hostGraceMs: `${TIMES.graceMs}ms`,
    hostWaitMs: `${TIMES.hostWaitMs}ms`,
    drainMs: "2s",
    journalWriter: plan.journalWriter,
  };
}

/** Two hosts and two sessions; made through the same network as everything else, and by a server that may already be dying. */
async function prepare(
  { round }: Plan,
  relay: Relay,
  brain: Brain,
): Promise<{ credentials: Record<"one" | "two", HostCredentials>; sessionIds: string[] }> {
  const agent = new http.Agent({ keepAlive: true });
  try {
    const registry = createClient(HostService, transport(relay.url, API_TOKEN, agent));
    const register = (name: string): Promise<HostCredentials> =>
      insist(() => registry.registerHost({ displayName: name, requestId: `host-${round}-${name}` }));
    const credentials = { one: await register("one"), two: await register("two") };
    const work = workTool(async () => "never run here");
    const tools = [
      work({ env: hostEnv({ name: "one", hostId: credentials.one.hostId }) }),
      work({ env: hostEnv({ name: "two", hostId: credentials.two.hostId }) }),
    ];
    const sessionIds: string[] = [];
    for (const name of ["a", "b"]) {
      const session = await insist(() => brain.sessions.create({ tools, requestId: `session-${round}-${name}` }));
      sessionIds.push(session.sessionId);
    }
    return { credentials, sessionIds };
  } finally {
    agent.destroy();
  }
}

interface Ground {
  readonly server: ServerKeeper;
  readonly hosts: readonly HostKeeper[];
  readonly linkOf: (link: number) => Relay;
  readonly timers: NodeJS.Timeout[];
  readonly cuts: Record<string, number>;
  readonly log: (what: string) => void;
}

function injectFault(fault: PlannedFault, ground: Ground): void {
  const { server, hosts, linkOf, timers, cuts, log } = ground;
  const count = (kind: string): void => {
    cuts[kind] = (cuts[kind] ?? 0) + 1;
  };
  const cut = (relay: Relay, link: number, how: Cut): void => {
    log(`cut ${nameOf(link)} (${how}, ${relay.cut(how)} connections)`);
    count(how);
  };
  switch (fault.what) {
    case "kill server":
      server.kill("at any time");
      return;
    case "kill host":
      hosts[fault.place]?.kill("at any time");
      return;
    case "kill both":
      server.kill("with a host");
      hosts[fault.place]?.kill("with the server");
      return;
    case "restart server":
      server.restart();
      return;
    case "restart host":
      hosts[fault.place]?.restart();
      return;
    case "cut":
      cut(linkOf(fault.link), fault.link, fault.how);
      return;
    case "freeze": {
      const { link, forMs, ending } = fault;
      const relay = linkOf(link);
      log(`froze ${nameOf(link)} for ${forMs} ms`);
      count("freeze");
      relay.freeze();
      const end = (): void => {
        if (ending !== "thaw") cut(relay, link, ending);
        relay.thaw();
        log(`thawed ${nameOf(link)}`);
      };
      timers.push(setTimeout(end, forMs));
      return;
    }
    case "stick": {
      const { link, nth } = fault;
      if (linkOf(link).stick(nth)) {
        log(`stuck one connection of ${nameOf(link)}`);
        count("stick");
      }
      return;
    }
    case "slow": {
      const relay = linkOf(fault.link);
      log(`slowed ${nameOf(fault.link)} to ${fault.delayMs} ms a piece for ${fault.forMs} ms`);
      count("slow");
      relay.slow(fault.delayMs);
      timers.push(setTimeout(() => relay.slow(0), fault.forMs));
      return;
    }
    default:
      fault satisfies never;
  }
}

function nameOf(link: number): string {
  return link === -1 ? "the callers' link" : `the link of place ${link}`;
}
