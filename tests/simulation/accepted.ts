import type { AttachRequest } from "@aexhq/brain-proto";
import type { Connection } from "./connection.js";
import type { Ground } from "./ground.js";
import type { BrainLife } from "./server.js";
import { keyOf } from "./truth.js";

/** What the server has taken note of by accepting an attach, and what it owes in the same step. */
export function acceptAttach(ground: Ground, life: BrainLife, connection: Connection): void {
  const { schedule, oracle, reached, trace } = ground;
  const { view } = life;
  const { attachment, generation } = connection;
  const { instanceId, heldCalls, maxConcurrentCalls } = attachment;
  const seen = view.generation.get(instanceId) ?? 0;
  // One that was gone is forgotten, its generation too.
  if (generation <= seen && view.earliestGone(instanceId) > schedule.now + 0.001)
    oracle.fail(`an attach of ${instanceId} with generation ${generation} is accepted after ${seen}`, [instanceId]);
  if (view.hasDetached(instanceId)) oracle.fail(`an attach of ${instanceId} is accepted after it detached`, [instanceId]);
  trace.note(`accept ${instanceId} ${generation} holding ${heldCalls?.calls.length ?? "no list"}`);
  const before = view.heardAt(instanceId);
  if (before !== undefined && schedule.now - before > 3 * ground.weather.heartbeatMs) reached.reach("instance silent and heard again");
  view.hear(instanceId, schedule.now, true);
  view.generation.set(instanceId, generation);
  view.streams.set(instanceId, connection);
  view.slots.set(`${instanceId} ${generation}`, Math.min(maxConcurrentCalls || 50, 50));
  if (heldCalls === undefined || attachment.generation === 0) reached.reach("attach that keeps no list");
  if (heldCalls === undefined) return;
  const listed = new Set(heldCalls.calls.map(keyOf));
  noteList(ground, life, { hostId: attachment.hostId, instanceId }, listed, true);
  if (attachment.generation === 0) return;
  for (const key of view.namedBy(instanceId)) {
    const call = view.open.get(key);
    if (call === undefined || call.receiver.generation >= generation) continue;
    if (listed.has(key)) reached.reach("attach that keeps its calls");
    else if (!view.refusedEndings.has(key)) oracle.failCall(key, `stays open after an attach of ${instanceId} that does not list it`);
  }
}

/** Takes the instance for a holder of what it lists, as the server must. */
function noteList(
  ground: Ground,
  life: BrainLife,
  by: { readonly hostId: string; readonly instanceId: string },
  listed: ReadonlySet<string>,
  isSure: boolean,
): void {
  const { oracle, reached } = ground;
  for (const key of listed) {
    const row = oracle.rowOf(key);
    if (row?.started.receiver?.hostId !== by.hostId) {
      reached.reach("foreign call in a list");
      continue;
    }
    if (row.endSequence !== undefined) continue;
    life.view.list(key, by.instanceId, isSure);
    if (row.started.receiver.instanceId !== by.instanceId) reached.reach("call listed by a successor");
  }
}

/** What the server has taken note of by accepting a heartbeat or a detach. */
export function noteRequest(ground: Ground, life: BrainLife, message: AttachRequest["message"], isSure: boolean): void {
  const { schedule, oracle, reached, truth, trace } = ground;
  const { view } = life;
  if (message.case === "heartbeat") {
    const { hostId, instanceId, heldCalls } = message.value;
    const before = view.heardAt(instanceId);
    if (before !== undefined && schedule.now - before > 3 * ground.weather.heartbeatMs) reached.reach("instance silent and heard again");
    view.hear(instanceId, schedule.now, isSure);
    if (heldCalls === undefined) return;
    const listed = new Set(heldCalls.calls.map(keyOf));
    noteList(ground, life, { hostId, instanceId }, listed, isSure);
    for (const key of view.namedBy(instanceId)) {
      if (!listed.has(key) && truth.deed(key).written > truth.deed(key).read)
        reached.reach("heartbeat with a list while a command is on its way");
    }
  }
  if (message.case === "detach") {
    const { instanceId, generation, heldCalls } = message.value;
    trace.note(`detach of ${instanceId} arrives`);
    view.detach(instanceId, schedule.now, isSure);
    if (heldCalls === undefined || !isSure) return;
    const listed = new Set(heldCalls.calls.map(keyOf));
    const named = [...view.namedBy(instanceId)].filter((key) => {
      const call = view.open.get(key);
      return call !== undefined && !listed.has(key) && (generation === 0 || call.receiver.generation <= generation);
    });
    // On a stream it is read in the rest of this step.
    schedule.after(0, () => {
      for (const key of named) {
        if (view.open.has(key) && !view.refusedEndings.has(key))
          oracle.failCall(key, `stays open after ${instanceId} detached without listing it`);
      }
    });
  }
}
