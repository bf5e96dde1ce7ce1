import { readFileSync, writeFileSync } from "node:fs";
import { type Profiler, Session } from "node:inspector/promises";

const INTERVAL_US = 200;
const SHOWN = 30;
/** Waiting for work, and the profiler itself. */
const IGNORED = new Set(["(idle)", "dispatch"]);

/** Runs it and writes the CPU profile of this process, of exactly that time, for Chrome's developer tools or `hotSpots`. */
export async function profiled<T>(file: string, run: () => Promise<T>): Promise<T> {
  const session = new Session();
  session.connect();
  try {
    await session.post("Profiler.enable");
    await session.post("Profiler.setSamplingInterval", { interval: INTERVAL_US });
    await session.post("Profiler.start");
    const value = await run();
    const { profile } = await session.post("Profiler.stop");
    writeFileSync(file, JSON.stringify(profile));
    return value;
  } finally {
    session.disconnect();
  }
}

/** The functions in which most time was spent themselves, and what a call spends in each part of the program. */
export function hotSpots(file: string, calls: number): string {
  const profile = JSON.parse(readFileSync(file, "utf8")) as Profiler.Profile;
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const functions = new Map<string, number>();
  const rooms = new Map<string, number>();
  let total = 0;
  for (const [index, id] of (profile.samples ?? []).entries()) {
    const frame = nodes.get(id)?.callFrame;
    if (frame === undefined || IGNORED.has(frame.functionName)) continue;
    const us = profile.timeDeltas?.[index] ?? 0;
    const room = roomOf(frame);
    add(functions, `${frame.functionName || "(anonymous)"}  ${room}${frame.url === "" ? "" : `:${frame.lineNumber + 1}`}`, us);
    add(rooms, room.replace(/\/[^/]*$/, ""), us);
    total += us;
  }
  return [
    `  ${(total / calls).toFixed(1)} us a call not idle in the server, waiting for the disk and for a processor included`,
    ...top(rooms, total, calls),
    "",
    ...top(functions, total, calls),
  ].join("\n");
}

function top(spent: ReadonlyMap<string, number>, total: number, calls: number): string[] {
  return [...spent]
    .sort(([, a], [, b]) => b - a)
    .slice(0, SHOWN)
    .map(([name, us]) => `  ${((100 * us) / total).toFixed(1).padStart(5)} %  ${(us / calls).toFixed(1).padStart(6)} us  ${name}`);
}

/** Where the code lives: a file of the repository, a package, Node, or the engine. */
function roomOf({ url, functionName }: Profiler.Profile["nodes"][number]["callFrame"]): string {
  if (url.startsWith("node:")) return `${url}/`;
  if (url === "") return functionName.startsWith("(") ? "engine/" : "native/";
  const inPackage = /\/node_modules\/((?:@[^/]+\/)?[^/]+)\/(.*)$/.exec(url);
  if (inPackage !== null) return `${inPackage[1]}/${inPackage[2]}`;
  return url.replace(/^.*\/(server|sdk|gen|bench)\//, "$1/");
}

function add(spent: Map<string, number>, name: string, us: number): void {
  spent.set(name, (spent.get(name) ?? 0) + us);
}
