import { Health, HealthCheckResponse_ServingStatus as Serving } from "@aexhq/brain-proto/grpc/health/v1/health_pb";
import type { DescService } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { quote } from "../core/names.js";

/** Whether the server takes work, as load balancers ask for it: `grpc.health.v1` for the server ("") and each service. */
export interface ServerHealth {
  readonly serving: boolean;
  /** From now on NOT_SERVING; whoever watches is told. */
  drain(): void;
  register(router: ConnectRouter): void;
}

export function createHealth(services: readonly DescService[]): ServerHealth {
  const names = new Set(["", ...services.map((service) => service.typeName)]);
  const draining = new AbortController();
  const now = (): Serving => (draining.signal.aborted ? Serving.NOT_SERVING : Serving.SERVING);

  return {
    get serving() {
      return !draining.signal.aborted;
    },
    drain() {
      draining.abort();
    },
    register(router) {
      router.service(Health, {
        check({ service }) {
          if (!names.has(service)) {
            // The protocol asks for this code, and health has no reasons of its own.
            throw new ConnectError(`this server has no service ${quote(service)}; ask for one that it lists, or for ""`, Code.NotFound);
          }
          return { status: now() };
        },
        list() {
          return { statuses: Object.fromEntries([...names].map((name) => [name, { status: now() }])) };
        },
        async *watch({ service }, { signal }) {
          // A service that is not here may come with another version: the protocol keeps the stream open.
          const known = names.has(service);
          const seen = known ? now() : Serving.SERVICE_UNKNOWN;
          yield { status: seen };
          if (known && seen === Serving.SERVING) {
            await aborted(signal, draining.signal);
            if (!signal.aborted) yield { status: Serving.NOT_SERVING };
          }
          await aborted(signal);
        },
      });
    },
  };
}

/** Resolves when one of the signals is aborted, and leaves no listener behind. */
function aborted(...signals: readonly AbortSignal[]): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      for (const signal of signals) signal.removeEventListener("abort", done);
      resolve();
    };
    if (signals.some((signal) => signal.aborted)) return resolve();
    for (const signal of signals) signal.addEventListener("abort", done);
  });
}
