import type { Witness } from "./witness.js";

const LOOK_EVERY_MS = 50;
const WORTH_SAYING_MS = 100;

/** Writes down when this process got no time to run: a stalled process keeps no promise about time. */
export function watchStalls(witness: Witness): () => void {
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    const ms = Math.round(now - last - LOOK_EVERY_MS);
    last = now;
    if (ms >= WORTH_SAYING_MS) witness.write({ what: "stalled", ms });
  }, LOOK_EVERY_MS).unref();
  return () => clearInterval(timer);
}
