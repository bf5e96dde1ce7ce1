import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";
import { codeToString } from "@connectrpc/connect/protocol-connect";
import { tapMessages } from "../rpc/tap-messages.js";

/**
 * What the server counts, as text for Prometheus. Label values are names of RPCs and codes and nothing that a
 * caller chooses, so that the number of lines is bounded.
 */
export interface Metrics {
  /** A number that goes up and down, read when somebody looks. */
  gauge(name: string, help: string, read: () => number): void;
  /** A number that only goes up, read when somebody looks. */
  counter(name: string, help: string, read: () => number): void;
  /** One RPC has ended; `code` is Connect's, or `ok`. */
  countRpc(rpc: string, code: string): void;
  /** Prometheus text format 0.0.4. */
  render(): string;
}

export function createMetrics(): Metrics {
  const readings: { name: string; help: string; kind: "gauge" | "counter"; read: () => number }[] = [];
  const rpcs = new Map<string, number>();
  return {
    gauge(name, help, read) {
      readings.push({ name, help, kind: "gauge", read });
    },
    counter(name, help, read) {
      readings.push({ name, help, kind: "counter", read });
    },
    countRpc(rpc, code) {
      const series = `brain_rpcs_total{rpc="${rpc}",code="${code}"}`;
      rpcs.set(series, (rpcs.get(series) ?? 0) + 1);
    },
    render() {
      const blocks = readings.map(({ name, help, kind, read }) => `# HELP ${name} ${help}\n# TYPE ${name} ${kind}\n${name} ${read()}\n`);
      blocks.push("# HELP brain_rpcs_total RPCs that have ended, by RPC and code.\n# TYPE brain_rpcs_total counter\n");
      for (const [series, count] of [...rpcs].sort()) blocks.push(`${series} ${count}\n`);
      return blocks.join("");
    },
  };
}

/** Counts every RPC when it ends; outermost, so that refusals by other interceptors count as what the caller sees. */
export function countRpcs(metrics: Metrics): Interceptor {
  return (next) => async (req) => {
    const rpc = `${req.service.typeName}/${req.method.name}`;
    const failed = (error: unknown): unknown => {
      metrics.countRpc(rpc, codeToString(error instanceof ConnectError ? error.code : Code.Internal));
      return error;
    };
    try {
      const response = await next(req);
      if (response.stream) {
        // A reader that leaves ends the stream without an error of its own.
        const ended = (): void => metrics.countRpc(rpc, req.signal.aborted ? codeToString(Code.Canceled) : "ok");
        return { ...response, message: tapMessages(response.message, { ended, failed }) };
      }
      metrics.countRpc(rpc, "ok");
      return response;
    } catch (error) {
      throw failed(error);
    }
  };
}
