import { readFileSync } from "node:fs";
import { cpus } from "node:os";

/** Linux counts in hundredths of a second wherever Node runs. */
const TICK_MS = 10;

/** Processor time a process has used so far, in milliseconds; NaN where that cannot be read. */
export function usedMs(pid: number): number {
  try {
    // The name of the program stands in parentheses and may hold anything; user and system time are fields 14 and 15.
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .split(" ");
    return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
  } catch {
    return Number.NaN;
  }
}

/**
 * What the rest of the machine does meanwhile: answers the share of all processors (0 to 1) that other processes took
 * since, NaN where that cannot be read. Figures of a busy machine are worth little.
 */
export function foreignCpu(pids: readonly number[]): () => number {
  const before = machineMs([process.pid, ...pids]);
  return () => {
    const after = machineMs([process.pid, ...pids]);
    return Math.max(0, after.busy - before.busy - (after.ours - before.ours)) / (after.all - before.all);
  };
}

function machineMs(pids: readonly number[]): { all: number; busy: number; ours: number } {
  let all = 0;
  let busy = 0;
  for (const { times } of cpus()) {
    const working = times.user + times.nice + times.sys + times.irq;
    busy += working;
    all += working + times.idle;
  }
  return { all, busy, ours: pids.reduce((sum, pid) => sum + usedMs(pid), 0) };
}
