import { EnvironmentSchema, type Failure, ImplementationSchema, type Receiver, ToolDefinitionSchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { createVirtualClock, type VirtualClock } from "../../../../tests/support/virtual-clock.js";
import type { Placement } from "../../core/catalogue.js";
import type { WaitingCall } from "../port.js";
import { CommandStream } from "./command-stream.js";
import { type HostCall, Instance } from "./instance.js";
import { WaitingList } from "./waiting-list.js";

const LIMITS = { hostWaitMs: 5000, waitingPerHost: 3 };

function placement(name: string): Placement {
  return {
    definition: create(ToolDefinitionSchema, { name }),
    canonicalDefinition: name,
    environment: create(EnvironmentSchema, { name: "local" }),
    implementation: create(ImplementationSchema),
    configurationJson: "{}",
  };
}

class Room {
  readonly clock: VirtualClock = createVirtualClock({ startWallMs: 0, settle: () => Promise.resolve() });
  readonly instances: Instance[] = [];
  readonly list = new WaitingList("host-1", () => this.instances, this.clock, LIMITS);
  readonly log: string[] = [];

  attach(instanceId: string, slots: number, tools?: readonly string[]): Instance {
    const times = { heartbeatMs: 1_000_000, graceMs: 5_000_000 };
    const instance = new Instance({ hostId: "host-1", instanceId }, this.clock, times, { silent: () => undefined, gone: () => undefined });
    instance.generation = 1;
    instance.concurrency = slots;
    instance.stream = new CommandStream(() => undefined);
    if (tools !== undefined) instance.served = new Map(tools.map((tool) => [`local/${tool}`, ""]));
    this.instances.push(instance);
    return instance;
  }

  call(callId: string, tool = "lookup"): WaitingCall {
    return {
      sessionId: "session-1",
      callId,
      placement: placement(tool),
      definitionSha256: "",
      grant: (receiver) => {
        this.log.push(`${callId} to ${receiver?.instanceId}`);
        this.use(receiver);
      },
      giveUp: ({ code }: Failure) => void this.log.push(`${callId} ${code}`),
    };
  }

  use(receiver: Receiver | undefined): void {
    const instance = this.instances.find(({ instanceId }) => instanceId === receiver?.instanceId);
    instance?.named.add({} as HostCall);
  }
}

function free(instance: Instance): void {
  const [used] = instance.named;
  if (used !== undefined) instance.named.delete(used);
}

describe("a waiting list", () => {
  it("grants at once where a slot is free, to the least loaded", () => {
    const room = new Room();
    room.attach("one", 2);
    room.attach("two", 2);
    for (const callId of ["a", "b", "c", "d"]) room.list.acquire(room.call(callId));
    expect(room.log).toEqual(["a to one", "b to two", "c to one", "d to two"]);
    expect(room.list.size).toBe(0);
  });

  it("wakes everyone in the order they came, each only while a slot is free", () => {
    const room = new Room();
    for (const callId of ["a", "b", "c"]) room.list.acquire(room.call(callId));
    room.attach("one", 2);
    room.list.wake();
    expect(room.log).toEqual(["a to one", "b to one"]);
    expect(room.list.size).toBe(1);
  });

  it("passes over those whose Tool no free instance serves", () => {
    const room = new Room();
    room.list.acquire(room.call("a", "store"));
    room.list.acquire(room.call("b", "lookup"));
    room.attach("one", 5, ["lookup"]);
    room.list.wake();
    expect(room.log).toEqual(["b to one"]);
  });

  it("wakes for a freed slot when the decision that freed it is over, and not inside it", async () => {
    const room = new Room();
    const one = room.attach("one", 1);
    room.list.acquire(room.call("a"));
    room.list.acquire(room.call("b"));
    free(one);
    room.list.wakeSoon();
    expect(room.log).toEqual(["a to one"]);
    await Promise.resolve();
    expect(room.log).toEqual(["a to one", "b to one"]);
  });

  it("lets no newcomer overtake a call that is about to be woken", async () => {
    const room = new Room();
    const one = room.attach("one", 1);
    room.list.acquire(room.call("a"));
    room.list.acquire(room.call("b"));
    free(one);
    room.list.wakeSoon();
    room.list.acquire(room.call("c"));
    await Promise.resolve();
    expect(room.log).toEqual(["a to one", "b to one"]);
    expect(room.list.size).toBe(1);
  });

  it("grants nothing to a call that has left", () => {
    const room = new Room();
    const [a, b] = [room.call("a"), room.call("b")];
    room.list.acquire(a);
    room.list.acquire(b);
    room.list.leave(a);
    room.attach("one", 1);
    room.list.wake();
    expect(room.log).toEqual(["b to one"]);
    expect(room.clock.pendingTimers).toBe(0);
  });

  it("wakes again when a grant frees another slot meanwhile", () => {
    const room = new Room();
    for (const callId of ["a", "b"]) room.list.acquire(room.call(callId));
    const one = room.attach("one", 1);
    const use = room.use.bind(room);
    // The start of the first could not be recorded, and is known at once.
    room.use = (receiver) => {
      use(receiver);
      room.use = use;
      free(one);
      room.list.wake();
    };
    room.list.wake();
    expect(room.log).toEqual(["a to one", "b to one"]);
  });

  it("takes no more than its limit; the next call is given up as host_overloaded", () => {
    const room = new Room();
    for (const callId of ["a", "b", "c", "d"]) room.list.acquire(room.call(callId));
    expect(room.log).toEqual(["d host_overloaded"]);
    expect(room.list.size).toBe(3);
  });

  it("runs host_wait for a call exactly while nobody who serves it is attached", async () => {
    const room = new Room();
    room.list.acquire(room.call("a"));
    await room.clock.advance(4999);
    const one = room.attach("one", 0);
    room.list.attachmentsChanged();
    await room.clock.advance(60_000);
    expect(room.log).toEqual([]);
    one.stream?.close();
    room.list.attachmentsChanged();
    await room.clock.advance(4999);
    // Attachments that change nothing for the call do not give it more time.
    room.attach("two", 1, ["store"]);
    room.list.attachmentsChanged();
    expect(room.log).toEqual([]);
    await room.clock.advance(1);
    expect(room.log).toEqual(["a host_unavailable"]);
    expect(room.list.size).toBe(0);
  });
});
