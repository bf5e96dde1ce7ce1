import { seedOf } from "./random.js";
import { Reached } from "./reached.js";
import { kindOf } from "./weather.js";
import { World, type WorldEnd } from "./world.js";

export interface RunEnd {
  readonly seed: number;
  readonly worlds: number;
  readonly calls: number;
  readonly happened: number;
  /** Of everything that happened in all worlds. */
  readonly hash: string;
  readonly reached: Reached;
  /** The first world in which something was wrong, and its story; nothing else is run after it. */
  readonly failure: { readonly world: number; readonly seed: number; readonly story: string } | undefined;
}

/** Runs worlds until `calls` calls were asked for. The world with number `n` of a seed is the same in every run. */
export async function simulate(options: { seed: number; calls: number; firstWorld?: number; keepTrace?: boolean }): Promise<RunEnd> {
  const reached = new Reached();
  let calls = 0;
  let happened = 0;
  let hash = 0;
  let world = options.firstWorld ?? 0;
  for (; calls < options.calls; world++) {
    const seed = seedOf(options.seed, world);
    const end = await new World(seed, kindOf(world), reached, options.keepTrace ?? false).run();
    calls += end.calls;
    happened += end.happened;
    hash = (Math.imul(hash, 31) + Number.parseInt(end.hash, 16)) >>> 0;
    if (end.violations.length > 0) {
      const again = await new World(seed, kindOf(world), new Reached(), true).run();
      return {
        seed: options.seed,
        worlds: world + 1,
        calls,
        happened,
        hash: hash.toString(16),
        reached,
        failure: { world, seed, story: storyOf(end, again) },
      };
    }
  }
  return { seed: options.seed, worlds: world, calls, happened, hash: hash.toString(16), reached, failure: undefined };
}

function storyOf(first: WorldEnd, again: WorldEnd): string {
  const [violation] = again.violations;
  const about = again.trace.about(violation?.about ?? [], 120);
  const lines = about.length < 5 ? again.trace.about([], 120) : about;
  return [
    ...first.violations.slice(0, 5).map(({ what }) => `WRONG: ${what}`),
    first.hash === again.hash
      ? "(the same happened when it was run again)"
      : `(NOT THE SAME when it was run again: ${again.violations[0]?.what ?? "nothing wrong"})`,
    JSON.stringify(first.weather),
    ...lines,
  ].join("\n");
}
