/**
 * Functions in the users' own processes. What makes their results survive:
 *
 * 1. A call is reserved to exactly one instance and generation before its start is recorded, and its command is
 *    written only to the stream of that instance and generation while it is current. It is never kept for a
 *    later stream and never moved to another instance.
 * 2. A lost stream or a silent instance ends nothing. A call is lost when its last holder is gone.
 * 3. A list ends calls only in an attach, only of this instance, only of earlier generations. The list in a
 *    heartbeat ends nothing; a missing list concludes nothing.
 * 4. Slots in use are the open calls whose record names the instance; nothing is counted beside them.
 */

import {
  AttachedSchema,
  type CallReference,
  CallReferenceSchema,
  CancelCallSchema,
  type CancelCause,
  DrainSchema,
  HeartbeatSchema,
  type HeldCalls,
  type HostAttachment,
  type RunTool,
  RunToolSchema,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { type Duration, durationFromMs } from "@bufbuild/protobuf/wkt";
import { type Config, LIMITS } from "../../config.js";
import { assert } from "../../core/assert.js";
import type { Placement } from "../../core/catalogue.js";
import { checkKey, quote } from "../../core/names.js";
import { failure } from "../../core/outcome.js";
import { invalidArgument, Refusal } from "../../core/refusal.js";
import type { Clock } from "../../runtime/clock.js";
import type { EnvironmentPort, OpenCall, WaitingCall } from "../port.js";
import { CommandStream } from "./command-stream.js";
import { type HostCall, Instance, keyOf } from "./instance.js";
import { WaitingList } from "./waiting-list.js";

interface Host {
  readonly hostId: string;
  readonly instances: Map<string, Instance>;
  readonly waiting: WaitingList;
  /** Detached for good; bounded, oldest forgotten first. */
  readonly detached: Set<string>;
}

export interface HostEnvironmentPorts {
  readonly clock: Clock;
  readonly config: Pick<Config, "heartbeatMs" | "hostGraceMs" | "hostWaitMs" | "hostConcurrency">;
  readonly serverVersion: string;
  readonly hostExists: (hostId: string) => Promise<boolean>;
}

export class HostEnvironment implements EnvironmentPort {
  readonly kind = "host";
  readonly #ports: HostEnvironmentPorts;
  readonly #hosts = new Map<string, Host>();
  readonly #open = new Map<string, HostCall>();
  /** Calls whose ending is decided and not yet durable: it may be taken back, so nobody is told of it. */
  readonly #closing = new Map<string, HostCall>();
  #draining = false;
  /** Before Brain listens nobody can be heard, so nobody is missed. */
  #listening = false;
  #closed = false;

  constructor(ports: HostEnvironmentPorts) {
    this.#ports = ports;
  }

  // -- the port ----------------------------------------------------------------------------------------------

  async admit(placement: Placement): Promise<void> {
    const hostId = hostOf(placement);
    if (hostId !== "" && (await this.#ports.hostExists(hostId))) return;
    throw new Refusal(
      "host_not_found",
      `Environment ${placement.environment.name} names host ${quote(hostId)}, which is not registered; register it with RegisterHost`,
      { environment: placement.environment.name, host_id: hostId.slice(0, 80) },
    );
  }

  acquire(waiting: WaitingCall): void {
    this.#host(hostOf(waiting.placement)).waiting.acquire(waiting);
  }

  leave(waiting: WaitingCall): void {
    this.#hosts.get(hostOf(waiting.placement))?.waiting.leave(waiting);
  }

  opened(call: OpenCall): void {
    const { receiver } = call.started;
    assert(receiver !== undefined, "an open call of a host names its receiver");
    const host = this.#host(receiver.hostId);
    const instance = this.#instance(host, receiver.instanceId);
    instance.generation = Math.max(instance.generation, receiver.generation);
    const key = keyOf(call);
    const closing = this.#closing.get(key);
    const held = closing?.call === call ? closing : { call, receiver, holders: new Set([instance]) };
    this.#closing.delete(key);
    this.#open.set(key, held);
    instance.named.add(held);
    // An ending was taken back: who went while it stood holds the call no more, and somebody must be missed for it.
    for (const holder of held.holders) if (host.instances.get(holder.instanceId) !== holder) held.holders.delete(holder);
    if (held.holders.size === 0) held.holders.add(instance);
    for (const holder of held.holders) holder.holds.add(held);
  }

  closed(call: OpenCall): void {
    const key = keyOf(call);
    const held = this.#open.get(key);
    if (held === undefined) return;
    this.#open.delete(key);
    this.#closing.set(key, held);
    const host = this.#host(held.receiver.hostId);
    host.instances.get(held.receiver.instanceId)?.named.delete(held);
    for (const holder of held.holders) holder.holds.delete(held);
    host.waiting.wakeSoon();
  }

  settled(call: OpenCall): void {
    const key = keyOf(call);
    if (this.#closing.get(key)?.call === call) this.#closing.delete(key);
  }

  send(call: OpenCall): void {
    const held = this.#open.get(keyOf(call));
    if (held === undefined) {
      // Ended by a decision that came before its start was durable: nothing is written, also if that ending is taken back.
      const closing = this.#closing.get(keyOf(call));
      if (closing !== undefined) this.#notDelivered(closing);
      return;
    }
    const remainingMs = call.remainingMs();
    // Its deadline is armed and about to pass; an expired command is not worth sending.
    if (remainingMs <= 0) return;
    const { receiver } = held;
    const instance = this.#hosts.get(receiver.hostId)?.instances.get(receiver.instanceId);
    const current = instance !== undefined && instance.generation === receiver.generation ? instance.stream : undefined;
    const command = runTool(call, remainingMs);
    const unwritten = (): void => this.#notDelivered(held);
    const written = current?.command({ case: "runTool", value: command }, unwritten, () => this.#renew(held, command)) ?? false;
    if (!written) unwritten();
  }

  /** A command may lie in a queue for long: what counts is the time left when it is written, and whether it is still wanted. */
  #renew({ call }: HostCall, command: RunTool): boolean {
    const key = keyOf(call);
    const remainingMs = call.remainingMs();
    if (remainingMs <= 0 || (!this.#open.has(key) && !this.#closing.has(key))) return false;
    command.remaining = remainingOf(remainingMs);
    return true;
  }

  stop(call: OpenCall, cause: CancelCause): void {
    const { sessionId, callSequence } = call;
    // It comes when the ending is durable, and before the call is settled.
    const held = this.#closing.get(keyOf(call));
    if (held?.call !== call) return;
    for (const holder of held.holders) {
      holder.stream?.command({ case: "cancelCall", value: create(CancelCallSchema, { sessionId, callSequence, cause }) });
    }
  }

  /** The instance that ran the call may have outlived the restart; it has a full grace to say so. */
  canReturn(call: OpenCall): boolean {
    return call.started.receiver !== undefined;
  }

  // -- the protocol ------------------------------------------------------------------------------------------

  /** Attaches an instance; the stream begins with `Attached`. The host is known to exist. @throws Refusal */
  attach(hostId: string, attachment: HostAttachment, answers?: number): CommandStream {
    checkAttachment(attachment);
    const { instanceId, heldCalls } = attachment;
    const host = this.#host(hostId);
    // One that is known may have lost its stream at this moment and still has outcomes to report.
    if (this.#closed || (this.#draining && !host.instances.has(instanceId))) {
      throw new Refusal("server_draining", "the server is about to stop; attach again later");
    }
    if (host.detached.has(instanceId)) {
      throw new Refusal(
        "instance_detached",
        `instance ${instanceId} of host ${hostId} has detached for good; start a new one with a new instance_id`,
      );
    }
    const seen = host.instances.get(instanceId)?.generation ?? highestGeneration(this.#naming(host, instanceId));
    const numbered = attachment.generation !== 0;
    const generation = numbered ? attachment.generation : seen + 1;
    if (generation <= seen) {
      throw new Refusal(
        "attach_superseded",
        `generation ${generation} of instance ${instanceId} is not above ${seen}, the highest seen; number the next attach higher`,
        { generation: String(seen) },
      );
    }
    const instance = this.#instance(host, instanceId);
    const older = instance.stream;
    instance.generation = generation;
    instance.served = servedBy(attachment);
    instance.servedTools = attachment.servedTools;
    instance.concurrency = Math.min(
      attachment.maxConcurrentCalls || this.#ports.config.hostConcurrency,
      this.#ports.config.hostConcurrency,
    );
    const stream = new CommandStream((gone) => this.#streamGone(host, instance, gone));
    instance.stream = stream;
    instance.heard();
    older?.close(new Refusal("attach_superseded", `instance ${instanceId} attached again, as generation ${generation}`));
    const ended = heldCalls === undefined ? [] : this.#list(host, instance, heldCalls);
    this.#greet(stream, generation, ended, answers);
    if (numbered && heldCalls !== undefined) this.#endUndelivered(instance, heldCalls, generation - 1);
    if (this.#draining) stream.command({ case: "drain", value: create(DrainSchema) });
    this.#beat(stream);
    host.waiting.attachmentsChanged();
    host.waiting.wake();
    return stream;
  }

  /** Names the listed calls that have ended. @throws Refusal `instance_not_attached` */
  heartbeat(hostId: string, instanceId: string, heldCalls: HeldCalls | undefined): CallReference[] {
    checkHeld(heldCalls);
    const host = this.#hosts.get(hostId);
    const instance = host?.instances.get(instanceId);
    if (host === undefined || instance === undefined) {
      throw new Refusal("instance_not_attached", `instance ${instanceId} of host ${hostId} is not known here; attach it`);
    }
    this.heard(hostId, instanceId);
    return heldCalls === undefined ? [] : this.#list(host, instance, heldCalls);
  }

  /** A sign of life that is no heartbeat. */
  heard(hostId: string, instanceId: string): void {
    const host = this.#hosts.get(hostId);
    const instance = host?.instances.get(instanceId);
    if (host === undefined || instance === undefined) return;
    const returned = instance.silent;
    instance.heard();
    if (!returned) return;
    host.waiting.attachmentsChanged();
    host.waiting.wake();
  }

  /** The instance leaves for good and promises that nothing unlisted will run. */
  detach(hostId: string, instanceId: string, generation: number, heldCalls: HeldCalls | undefined): void {
    checkKey("instance_id", instanceId);
    checkHeld(heldCalls);
    const host = this.#host(hostId);
    host.detached.add(instanceId);
    if (host.detached.size > LIMITS.detachedInstances) {
      for (const oldest of host.detached) {
        host.detached.delete(oldest);
        break;
      }
    }
    const instance = this.#instance(host, instanceId);
    // What it has not read it will not read, list or no list.
    instance.stream?.withdraw();
    // Without a list nothing more is promised: its calls only lose this holder.
    if (heldCalls !== undefined) this.#endUndelivered(instance, heldCalls, generation === 0 ? instance.generation : generation);
    this.#remove(
      instance,
      `instance ${instanceId} of host ${hostId} detached before it reported an outcome; the Tool may have run, wholly or in part`,
    );
  }

  /** Full graces from now on: Brain has just begun to listen after a restart. */
  listening(): void {
    this.#listening = true;
    for (const host of this.#hosts.values()) for (const instance of host.instances.values()) instance.watch();
  }

  /** Tells every instance that the server is about to stop, and lets no new one attach. */
  drain(): void {
    this.#draining = true;
    for (const host of this.#hosts.values()) {
      for (const instance of host.instances.values()) instance.stream?.command({ case: "drain", value: create(DrainSchema) });
    }
  }

  /** Closes every stream; calls stay open over the restart. */
  close(): void {
    this.#closed = true;
    for (const host of this.#hosts.values()) {
      for (const instance of host.instances.values()) {
        instance.forget();
        instance.stream?.finish();
      }
    }
  }

  /** The host was deleted; it had no instance. */
  forgetHost(hostId: string): void {
    if (this.#hosts.get(hostId)?.instances.size === 0) this.#hosts.delete(hostId);
  }

  instances(hostId: string): readonly Instance[] {
    return [...(this.#hosts.get(hostId)?.instances.values() ?? [])];
  }

  // -- inside ------------------------------------------------------------------------------------------------

  #host(hostId: string): Host {
    let host = this.#hosts.get(hostId);
    if (host === undefined) {
      const instances = new Map<string, Instance>();
      const { clock, config } = this.#ports;
      const limits = { hostWaitMs: config.hostWaitMs, waitingPerHost: LIMITS.waitingPerHost };
      host = { hostId, instances, waiting: new WaitingList(hostId, () => instances.values(), clock, limits), detached: new Set() };
      this.#hosts.set(hostId, host);
    }
    return host;
  }

  #instance(host: Host, instanceId: string): Instance {
    let instance = host.instances.get(instanceId);
    if (instance === undefined) {
      const { clock, config } = this.#ports;
      const times = { heartbeatMs: config.heartbeatMs, graceMs: config.hostGraceMs };
      instance = new Instance({ hostId: host.hostId, instanceId }, clock, times, {
        silent: () => host.waiting.attachmentsChanged(),
        gone: (gone) => {
          // What it has not read is known not to have run; the rest is lost.
          gone.stream?.close();
          this.#remove(
            gone,
            `nothing was heard of instance ${instanceId} of host ${host.hostId} for ${times.graceMs} ms; the Tool may have run, wholly or in part`,
          );
        },
      });
      const naming = this.#naming(host, instanceId);
      for (const held of naming) instance.named.add(held);
      instance.generation = highestGeneration(naming);
      host.instances.set(instanceId, instance);
      if (this.#listening) instance.watch();
    }
    return instance;
  }

  /** Open calls whose record names the instance: of one that was gone, those that others have held meanwhile. */
  #naming(host: Host, instanceId: string): HostCall[] {
    return [...this.#open.values()].filter(({ receiver }) => receiver.hostId === host.hostId && receiver.instanceId === instanceId);
  }

  /** Takes the instance for a holder of every open call it lists; answers the others, which have ended or never were its. */
  #list(host: Host, instance: Instance, heldCalls: HeldCalls): CallReference[] {
    const ended: CallReference[] = [];
    for (const { sessionId, callSequence } of heldCalls.calls) {
      const key = keyOf({ sessionId, callSequence });
      const held = this.#open.get(key) ?? this.#closing.get(key);
      if (held === undefined || held.receiver.hostId !== host.hostId) {
        ended.push(create(CallReferenceSchema, { sessionId, callSequence }));
        continue;
      }
      held.holders.add(instance);
      if (this.#open.has(key)) instance.holds.add(held);
    }
    return ended;
  }

  /** The calls of this instance up to that generation that it does not list: their command never arrived and never will. */
  #endUndelivered(instance: Instance, heldCalls: HeldCalls, upToGeneration: number): void {
    const listed = new Set(heldCalls.calls.map(keyOf));
    for (const held of [...instance.named]) {
      if (held.receiver.generation <= upToGeneration && !listed.has(keyOf(held.call))) this.#notDelivered(held);
    }
  }

  #notDelivered(held: HostCall): void {
    const { hostId, instanceId } = held.receiver;
    const message = `the command did not reach instance ${instanceId} of host ${hostId}; the Tool did not run, so it can be called again under a new call_id`;
    held.call.notify({ type: "undeliverable", failure: failure("command_not_delivered", message, { retryable: true }) });
  }

  #streamGone(host: Host, instance: Instance, stream: CommandStream): void {
    if (instance.stream !== stream) return;
    instance.stream = undefined;
    host.waiting.attachmentsChanged();
  }

  /** The instance is gone for good. */
  #remove(instance: Instance, why: string): void {
    const host = this.#host(instance.hostId);
    host.instances.delete(instance.instanceId);
    instance.forget();
    instance.stream?.finish();
    instance.stream = undefined;
    for (const held of [...instance.holds]) {
      instance.holds.delete(held);
      held.holders.delete(instance);
      if (held.holders.size === 0) held.call.notify({ type: "lost", failure: failure("host_instance_lost", why) });
    }
    host.waiting.attachmentsChanged();
    // A host without instances and waiters is only its detached ids; keep those, forget the rest.
    if (host.instances.size === 0 && host.waiting.size === 0 && host.detached.size === 0) this.#hosts.delete(host.hostId);
  }

  #greet(stream: CommandStream, generation: number, ended: CallReference[], answers: number | undefined): void {
    const { config, serverVersion } = this.#ports;
    const attached = create(AttachedSchema, {
      generation,
      heartbeatInterval: durationFromMs(config.heartbeatMs),
      grace: durationFromMs(config.hostGraceMs),
      ended,
      serverVersion,
    });
    const value = { $typeName: "brain.v1.Command" as const, kind: { case: "attached" as const, value: attached } };
    stream.push({ case: "command", value }, answers === undefined ? {} : { answers });
  }

  #beat(stream: CommandStream): void {
    const again = (): void => {
      if (stream.command({ case: "heartbeat", value: create(HeartbeatSchema) }))
        this.#ports.clock.after(this.#ports.config.heartbeatMs, again);
    };
    this.#ports.clock.after(this.#ports.config.heartbeatMs, again);
  }
}

function highestGeneration(calls: readonly HostCall[]): number {
  return calls.reduce((highest, { receiver }) => Math.max(highest, receiver.generation), 0);
}

function hostOf(placement: Placement): string {
  const { kind } = placement.environment;
  assert(kind.case === "host", "a placement of the host Environment names its host");
  return kind.value.hostId;
}

function remainingOf(remainingMs: number): Duration {
  return durationFromMs(Math.max(1, Math.floor(remainingMs)));
}

function runTool(call: OpenCall, remainingMs: number): RunTool {
  const { started, placement, sessionId, callSequence } = call;
  const command = create(RunToolSchema, {
    sessionId,
    callSequence,
    callId: started.callId,
    name: started.name,
    environment: started.environment,
    inputJson: started.inputJson,
    configurationJson: placement.configurationJson,
    remaining: remainingOf(remainingMs),
    traceparent: started.traceparent,
  });
  if (started.deadline !== undefined) command.deadline = started.deadline;
  return command;
}

function checkAttachment(attachment: HostAttachment): void {
  checkKey("attachment.instance_id", attachment.instanceId);
  checkHeld(attachment.heldCalls);
  if (attachment.servedTools.length > LIMITS.servedToolsPerAttach) {
    throw invalidArgument(
      "attachment.served_tools",
      `has ${attachment.servedTools.length} entries; at most ${LIMITS.servedToolsPerAttach} are allowed`,
    );
  }
}

function checkHeld(heldCalls: HeldCalls | undefined): void {
  if (heldCalls !== undefined && heldCalls.calls.length > LIMITS.heldCallsPerAttach) {
    throw invalidArgument("held_calls", `has ${heldCalls.calls.length} entries; at most ${LIMITS.heldCallsPerAttach} are allowed`);
  }
}

function servedBy(attachment: HostAttachment): ReadonlyMap<string, string> | undefined {
  if (attachment.servedTools.length === 0) return undefined;
  return new Map(attachment.servedTools.map((tool) => [`${tool.environment}/${tool.name}`, tool.definitionSha256]));
}
