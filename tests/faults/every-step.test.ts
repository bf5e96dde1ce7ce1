/**
 * Every step of a call with a fault at it: the Nth append, the Nth command written, the Nth request of a host and the
 * Nth answer to a caller, for every N until a run has no Nth one. After each run the journal is opened again and read.
 */
import { describe, expect, it } from "vitest";
import { FAULTS, NthFault, type StepKind } from "../simulation/faults.js";
import { ScriptedWorld } from "../simulation/scripted-world.js";
import { SCRIPTS, type Script } from "../simulation/scripts-of-every-step.js";
import { checkDirectory } from "../simulation/told.js";

type Route = "attach" | "watch";

/** The route makes a difference where something travels between a host and the server. */
const ROUTES: Readonly<Record<StepKind, readonly Route[]>> = {
  append: ["watch"],
  start: ["watch"],
  write: ["watch", "attach"],
  request: ["watch", "attach"],
  answer: ["watch"],
};
/** No script takes as many steps of one kind. */
const MOST_STEPS = 100;

interface Played {
  readonly wrong: readonly string[];
  readonly endings: readonly string[];
  readonly expected: readonly string[];
}

async function play(script: Script, route: Route, fault: NthFault | undefined): Promise<Played> {
  await using world = new ScriptedWorld(fault);
  await world.begin();
  const calls = script.play(world, route);
  await world.rest(script.lastsMs);
  await world.close();
  const { directories, oracle, trace } = world;
  const wrong = oracle.violations.map(({ what }) => what);
  wrong.push(...(await checkDirectory(directories.current, directories.file, oracle.told)));
  if (wrong.length > 0) wrong.push(...trace.about([], 80));
  return { wrong, endings: calls.map(([ask]) => world.ending(ask)), expected: calls.map(([, ending]) => ending) };
}

describe.each(SCRIPTS)("$name", (script) => {
  it.each(["watch", "attach"] as const)("ends as it should over the %s route when nothing goes wrong", async (route) => {
    const { wrong, endings, expected } = await play(script, route, undefined);
    expect(wrong).toEqual([]);
    expect(endings).toEqual(expected);
  });

  for (const kind of Object.keys(FAULTS) as StepKind[]) {
    for (const what of FAULTS[kind]) {
      it.each(ROUTES[kind])(`keeps every law over the %s route with "${what}" at each ${kind}`, async (route) => {
        for (let nth = 1; nth < MOST_STEPS; nth++) {
          const fault = new NthFault(kind, what, nth);
          const { wrong } = await play(script, route, fault);
          expect(wrong, `"${what}" at the ${nth}th ${kind}`).toEqual([]);
          if (!fault.happened) return;
        }
        expect.unreachable(`the script takes ${MOST_STEPS} steps of kind ${kind}, or does not end`);
      });
    }
  }
});
