import {
  type CallReference,
  CallReferenceSchema,
  CallToolRequestSchema,
  DetachRequestSchema,
  EmitEventRequestSchema,
  HeartbeatRequestSchema,
  HostAttachmentSchema,
  ReportOutcomeRequestSchema,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { Connection, type FromServer, type Reader } from "./connection.js";
import { okOutcome } from "./function-run.js";
import type { Ground } from "./ground.js";
import { type Heard, request } from "./requests.js";
import type { BrainLife } from "./server.js";
import { keyOf } from "./truth.js";

const UNARY = { frozenUntil: 0, mayDouble: false };
const NEVER = new AbortController().signal;

/** Refusals that say nothing about what was asked. */
const NOT_NOW: ReadonlySet<string> = new Set(["journal_full", "journal_unavailable", "server_draining"]);

/** Somebody who speaks for calls and hosts that are not his, or breaks the rules: each such request has one right answer. */
export function strangerKnocks(ground: Ground, hosts: readonly string[]): void {
  const { random, file } = ground;
  const [own, other] = random.chance(0.5) ? [hosts[0], hosts[1]] : [hosts[1], hosts[0]];
  const rows = [...file.open.values()].filter((row) => row.started.receiver?.hostId === own);
  const target = rows.length === 0 ? undefined : random.pick(rows);
  if (own === undefined || other === undefined) return;
  const reference = create(CallReferenceSchema, target ?? { sessionId: [...file.sessions.keys()][0] ?? "none", callSequence: 999_999 });
  random.pick([
    reportsForeign,
    emitsForeign,
    listsForeign,
    speaksForAnother,
    emitsNothing,
    unknownInstance,
    unknownHost,
    detachedReturns,
    repeatsOtherwise,
  ])(ground, { own, other, reference });
}

interface Knock {
  readonly own: string;
  readonly other: string;
  readonly reference: CallReference;
}

function expectRefusal(ground: Ground, what: string, reason: string): (heard: Heard<unknown>) => void {
  return (heard) => {
    if (heard.type === "lost" || (heard.type === "refused" && (heard.reason === reason || NOT_NOW.has(heard.reason)))) return;
    ground.oracle.fail(
      `${what} is ${heard.type === "refused" ? `refused ${heard.reason}` : `answered ${JSON.stringify(heard.answer)}`} instead of refused ${reason}`,
    );
  };
}

function reportsForeign(ground: Ground, { other, reference }: Knock): void {
  const report = create(ReportOutcomeRequestSchema, {
    ...reference,
    $typeName: "brain.v1.ReportOutcomeRequest",
    outcome: okOutcome('{"value":"foreign"}'),
  });
  const send = (life: BrainLife): unknown => life.protocol.reportOutcome(report, ground.server.context(other, NEVER));
  request(ground, UNARY, send, expectRefusal(ground, "a report of a foreign host", "call_not_found"));
}

function emitsForeign(ground: Ground, { other, reference }: Knock): void {
  const { sessionId, callSequence } = reference;
  const event = create(EmitEventRequestSchema, { sessionId, callSequence, kind: "tick", dataJson: "1", emitId: "foreign" });
  const send = (life: BrainLife): unknown => life.protocol.emitEvent(event, ground.server.context(other, NEVER));
  request(ground, UNARY, send, expectRefusal(ground, "an emit of a foreign host", "call_not_found"));
}

function speaksForAnother(ground: Ground, { own, other, reference }: Knock): void {
  const heldCalls = { calls: [reference] };
  const beat = create(HeartbeatRequestSchema, { hostId: own, instanceId: "stranger", heldCalls });
  const send = (life: BrainLife): unknown => life.protocol.heartbeat(beat, ground.server.context(other, NEVER));
  request(ground, UNARY, send, expectRefusal(ground, "a heartbeat for another host", "permission_denied"));
  const leave = create(DetachRequestSchema, { hostId: own, instanceId: "stranger", generation: 9, heldCalls: { calls: [] } });
  const detach = (life: BrainLife): unknown => life.protocol.detach(leave, ground.server.context(other, NEVER));
  request(ground, UNARY, detach, expectRefusal(ground, "a detach for another host", "permission_denied"));
}

function emitsNothing(ground: Ground, { own, reference }: Knock): void {
  const { sessionId, callSequence } = reference;
  const event = create(EmitEventRequestSchema, { sessionId, callSequence, kind: "", dataJson: "1", emitId: "nothing" });
  const send = (life: BrainLife): unknown => life.protocol.emitEvent(event, ground.server.context(own, NEVER));
  request(ground, UNARY, send, expectRefusal(ground, "an emit without a kind", "invalid_argument"));
}

function unknownInstance(ground: Ground, { own, reference }: Knock): void {
  const beat = create(HeartbeatRequestSchema, { hostId: own, instanceId: "never-attached", heldCalls: { calls: [reference] } });
  const send = (life: BrainLife): unknown => life.protocol.heartbeat(beat, ground.server.context(own, NEVER));
  request(ground, UNARY, send, expectRefusal(ground, "a heartbeat of an unknown instance", "instance_not_attached"));
}

function unknownHost(ground: Ground): void {
  attachOnce(ground, "api", "no-such-host", "stranger", [], "host_not_found");
}

/** An instance that has left comes back. */
function detachedReturns(ground: Ground, { own }: Knock): void {
  const instanceId = `left-${ground.schedule.happened}`;
  const leave = create(DetachRequestSchema, { hostId: own, instanceId, generation: 1, heldCalls: { calls: [] } });
  const send = (life: BrainLife): unknown => {
    life.view.detach(instanceId, ground.schedule.now, true);
    return life.protocol.detach(leave, ground.server.context(own, NEVER));
  };
  const before = ground.server.life;
  request(ground, UNARY, send, (heard) => {
    if (heard.type === "answered" && ground.server.life === before) attachOnce(ground, own, own, instanceId, [], "instance_detached");
  });
}

/** Lists calls that are another host's, and one that never was: all of them must be named as ended. */
function listsForeign(ground: Ground, { other, reference }: Knock): void {
  const made = create(CallReferenceSchema, { sessionId: reference.sessionId, callSequence: 999_998 });
  attachOnce(ground, other, other, `foreign-${ground.schedule.happened}`, [reference, made], undefined);
}

/** Asks for a recorded call again, with another input. */
function repeatsOtherwise(ground: Ground, { reference }: Knock): void {
  const row = ground.oracle.rowOf(keyOf(reference));
  if (row === undefined) return;
  const { callId, name, environment } = row.started;
  const message = create(CallToolRequestSchema, { sessionId: row.sessionId, callId, name, environment, inputJson: '{"n":"another"}' });
  const send = (life: BrainLife): Promise<unknown> => life.brain.sessions.callTool(message, { principal: "api", traceparent: "" });
  request(ground, UNARY, send, expectRefusal(ground, `a repeat of ${callId} with another input`, "call_id_conflict"));
}

/** Attaches, lists, beats a few times with that list, and goes. It serves nothing. */
function attachOnce(
  ground: Ground,
  token: string,
  hostId: string,
  instanceId: string,
  calls: readonly CallReference[],
  refused: string | undefined,
): void {
  const { schedule, oracle, server, weather } = ground;
  const attachment = create(HostAttachmentSchema, {
    hostId,
    instanceId,
    generation: 1,
    heldCalls: { calls: [...calls] },
    maxConcurrentCalls: 1,
    servedTools: [{ environment: "none", name: "none", definitionSha256: "" }],
  });
  const expectAllEnded = (ended: readonly CallReference[]): void => {
    const named = new Set(ended.map(keyOf));
    for (const call of calls)
      if (!named.has(keyOf(call))) oracle.failCall(keyOf(call), "a foreign host lists it, and is not told that it has ended");
  };
  const take = (connection: Connection, message: FromServer): void => {
    if (message.type === "end") {
      if (refused !== undefined && message.reason !== undefined && message.reason !== refused && !NOT_NOW.has(message.reason)) {
        oracle.fail(`an attach is refused ${message.reason} instead of ${refused}`);
      }
      connection.drop();
    } else if (message.type === "command" && message.kind.case === "attached") {
      if (refused !== undefined) oracle.fail(`an attach is accepted instead of refused ${refused}`);
      expectAllEnded(message.kind.value.ended);
    } else if (message.type === "command" && message.kind.case === "runTool") {
      oracle.failCall(keyOf(message.kind.value), "is sent to an instance that serves nothing");
    }
  };
  const reader: Reader = { hostId, instanceId, frozenUntil: 0, keepsList: true, take };
  const connection = new Connection(ground, reader, "watch", attachment, token);
  connection.open(0);
  const beat = create(HeartbeatRequestSchema, { hostId, instanceId, heldCalls: { calls: [...calls] } });
  const send = async (life: BrainLife): Promise<readonly CallReference[]> => {
    const answer = await life.protocol.heartbeat(beat, server.context(token, NEVER));
    return answer.ended as readonly CallReference[];
  };
  for (let beats = 1; beats <= 12 && refused === undefined; beats++) {
    schedule.after(beats * weather.heartbeatMs, () => {
      request(ground, UNARY, send, (heard) => {
        if (heard.type === "answered") expectAllEnded(heard.answer);
      });
    });
  }
  schedule.after(14 * weather.heartbeatMs, () => connection.drop());
}
