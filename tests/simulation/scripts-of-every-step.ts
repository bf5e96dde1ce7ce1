import type { Plan } from "./function-run.js";
import { failedOutcome, okOutcome } from "./function-run.js";
import type { ScriptedWorld } from "./scripted-world.js";
import type { Ask } from "./truth.js";

/** A small life of calls, and how they end when nothing goes wrong. */
export interface Script {
  readonly name: string;
  /** Does what it does, and names the calls with the endings they have without a fault. */
  play(world: ScriptedWorld, route: "attach" | "watch"): readonly (readonly [Ask, string])[];
  /** From the beginning until everything it does has been done. */
  readonly lastsMs: number;
}

function plan(takesMs: number, more: { emits?: number; value?: string; deaf?: boolean; fails?: boolean } = {}): Plan {
  const emits = more.emits ?? 0;
  const steps = Array.from({ length: emits + 1 }, (_, index) => ({
    afterMs: takesMs / (emits + 1),
    emitId: index < emits ? `${more.value ?? "tick"}-${index}` : undefined,
  }));
  const outcome =
    more.fails === true ? failedOutcome("error", "own_failure", "no") : okOutcome(JSON.stringify({ value: more.value ?? "done" }));
  return { steps, outcome, isDeaf: more.deaf ?? false, clumsy: false };
}

export const SCRIPTS: readonly Script[] = [
  {
    name: "a plain call",
    lastsMs: 300,
    play(world, route) {
      world.process("i1", { route });
      return [[world.call("c1", plan(50)), "ok"]];
    },
  },
  {
    name: "a call that emits and fails in its own way",
    lastsMs: 300,
    play(world, route) {
      world.process("i1", { route });
      return [[world.call("c1", plan(60, { emits: 2, fails: true })), "error own_failure"]];
    },
  },
  {
    name: "a call with invalid input",
    lastsMs: 300,
    play(world, route) {
      world.process("i1", { route });
      return [[world.call("c1", plan(50), { inputJson: '{"m":1}' }), "error invalid_input"]];
    },
  },
  {
    name: "a call that is cancelled while it runs, and stops",
    lastsMs: 600,
    play(world, route) {
      world.process("i1", { route });
      const ask = world.call("c1", plan(5000));
      world.at(200, () => world.cancel(ask));
      return [[ask, "cancelled cancel_requested"]];
    },
  },
  {
    name: "a call that is cancelled, and whose function says later what it did",
    lastsMs: 1200,
    play(world, route) {
      world.process("i1", { route });
      const ask = world.call("c1", plan(600, { deaf: true, emits: 1 }));
      world.at(200, () => world.cancel(ask));
      return [[ask, "cancelled cancel_requested"]];
    },
  },
  {
    name: "a call that meets its deadline",
    lastsMs: 1500,
    play(world, route) {
      world.process("i1", { route });
      return [[world.call("c1", plan(1000, { deaf: true }), { timeoutMs: 300 }), "timeout deadline_passed"]];
    },
  },
  {
    name: "a session that ends with a call that runs and one that waits",
    lastsMs: 1500,
    play(world, route) {
      world.process("i1", { route, slots: 1 });
      const running = world.call("c1", plan(800, { deaf: true }));
      const waiting: Ask[] = [];
      world.at(100, () => waiting.push(world.call("c2", plan(50))));
      world.at(300, () => world.endSession());
      return [[running, "cancelled session_ended"]];
    },
  },
  {
    name: "a call that waits for a slot and is granted it",
    lastsMs: 1000,
    play(world, route) {
      world.process("i1", { route, slots: 1 });
      const first = world.call("c1", plan(300));
      world.at(100, () => world.call("c2", plan(50, { value: "second" })));
      return [[first, "ok"]];
    },
  },
  {
    name: "a call that waits for an instance that comes, and one that none comes for",
    lastsMs: 3000,
    play(world, route) {
      world.at(300, () => world.process("i1", { route, served: [] }));
      return [
        [world.call("c1", plan(50)), "ok"],
        [world.call("c2", plan(50), { name: "nowhere" }), "error placement_not_found"],
      ];
    },
  },
  {
    name: "a stream that is lost while a call runs, and attached anew with it",
    lastsMs: 2000,
    play(world, route) {
      const process = world.process("i1", { route });
      const ask = world.call("c1", plan(900, { emits: 2 }));
      world.at(200, () => process.connection?.cut(true, true));
      return [[ask, "ok"]];
    },
  },
  {
    name: "a stream that is lost with a command on its way, and attached anew without it",
    lastsMs: 2500,
    play(world, route) {
      const process = world.process("i1", { route });
      world.at(100, () => {
        // Nothing gets through, and neither side knows.
        process.connection?.cut(false, false);
        world.call("c1", plan(50));
      });
      return [];
    },
  },
  {
    name: "two calls of one session that go on side by side",
    lastsMs: 1000,
    play(world, route) {
      world.process("i1", { route });
      return [
        [world.call("c1", plan(200, { emits: 2, value: "one" })), "ok"],
        [world.call("c2", plan(160, { emits: 2, value: "two" })), "ok"],
      ];
    },
  },
  {
    name: "an instance that leaves with a call it gives up and one it never read",
    lastsMs: 4000,
    play(world, route) {
      const process = world.process("i1", { route });
      const ask = world.call("c1", plan(5000));
      world.at(200, () => process.leave(0));
      return [[ask, "unknown host_instance_lost"]];
    },
  },
  {
    name: "an instance that dies, and a successor that finds what it had finished",
    lastsMs: 3000,
    play(world, route) {
      const process = world.process("i1", { route, hasOutbox: true });
      const ask = world.call("c1", plan(100));
      world.at(95, () => process.connection?.cut(false, false));
      const succeed = (): void => {
        if (process.lives && process.heldCalls > 0 && process.outbox.size === 0) {
          world.at(5, succeed);
          return;
        }
        if (process.lives) process.die(true);
        world.process("i2", { route, hasOutbox: true, inherited: new Map(process.outbox) });
      };
      world.at(130, succeed);
      return [[ask, "ok"]];
    },
  },
];
