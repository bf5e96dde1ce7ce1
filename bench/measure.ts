import { profiled } from "./profile.js";

/** The figures of one span of time with a fixed number of calls in flight. */
export interface Cell {
  readonly calls: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly callsPerSecond: number;
  readonly flushes: number;
}

/** What is measured: one call, and the counter of the journal behind it. */
export interface Callable {
  call(sessionId: string): Promise<void>;
  readonly flushCount: number;
}

/** What to measure. */
export interface Span {
  readonly inFlight: number;
  readonly milliseconds: number;
  readonly sessionIds: readonly string[];
  /** Where a CPU profile of exactly this span goes. */
  readonly profile?: string;
}

/** A closed loop: as many callers as calls in flight, each making its next call when the last has ended. */
export async function measure(callable: Callable, span: Span): Promise<Cell> {
  return span.profile === undefined ? run(callable, span) : profiled(span.profile, () => run(callable, span));
}

async function run(callable: Callable, { inFlight, milliseconds, sessionIds }: Span): Promise<Cell> {
  const latencies: number[] = [];
  const flushesBefore = callable.flushCount;
  const startMs = performance.now();
  const until = startMs + milliseconds;
  await Promise.all(
    Array.from({ length: inFlight }, async (_, caller) => {
      const sessionId = sessionIds[caller % sessionIds.length] ?? "";
      for (let now = performance.now(); now < until; ) {
        const calledMs = now;
        await callable.call(sessionId);
        now = performance.now();
        latencies.push(now - calledMs);
      }
    }),
  );
  const elapsedMs = performance.now() - startMs;
  const sorted = Float64Array.from(latencies).sort();
  return {
    calls: sorted.length,
    p50Ms: percentile(sorted, 0.5),
    p99Ms: percentile(sorted, 0.99),
    callsPerSecond: (sorted.length / elapsedMs) * 1000,
    flushes: callable.flushCount - flushesBefore,
  };
}

function percentile(sorted: Float64Array, fraction: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * fraction))] ?? Number.NaN;
}
