import { Health, HealthCheckResponse_ServingStatus as Serving } from "@aexhq/brain-proto/grpc/health/v1/health_pb";
import { Code, ConnectError, createClient, createRouterTransport } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { SERVED_SERVICES } from "./authorize.js";
import { createHealth } from "./health.js";

function open() {
  const health = createHealth(SERVED_SERVICES);
  return {
    health,
    client: createClient(
      Health,
      createRouterTransport((router) => health.register(router)),
    ),
  };
}

test("the server and each service serve until they drain", async () => {
  const { health, client } = open();
  const names = ["", ...SERVED_SERVICES.map((service) => service.typeName)];
  for (const service of names) expect((await client.check({ service })).status).toBe(Serving.SERVING);
  expect(Object.keys((await client.list({})).statuses).sort()).toEqual([...names].sort());
  expect(health.serving).toBe(true);
  health.drain();
  expect(health.serving).toBe(false);
  for (const service of names) expect((await client.check({ service })).status).toBe(Serving.NOT_SERVING);
  expect((await client.list({})).statuses[""]?.status).toBe(Serving.NOT_SERVING);
});

test("a service that is not here is not found", async () => {
  const error = await open().client.check({ service: "brain.v1.Nothing" }).catch(ConnectError.from);
  expect(error).toMatchObject({ code: Code.NotFound });
});

test("whoever watches hears of draining, and its stream ends when it leaves", async () => {
  const { health, client } = open();
  const leave = new AbortController();
  const seen: Serving[] = [];
  const ended = (async () => {
    for await (const { status } of client.watch({ service: "brain.v1.HostService" }, { signal: leave.signal })) {
      seen.push(status);
      if (status === Serving.SERVING) health.drain();
      else leave.abort();
    }
  })();
  await expect(ended).rejects.toMatchObject({ code: Code.Canceled });
  expect(seen).toEqual([Serving.SERVING, Serving.NOT_SERVING]);
});

test("whoever watches an unknown service is told so and not sent away", async () => {
  const leave = new AbortController();
  const messages = open().client.watch({ service: "brain.v1.Nothing" }, { signal: leave.signal })[Symbol.asyncIterator]();
  expect((await messages.next()).value).toMatchObject({ status: Serving.SERVICE_UNKNOWN });
  const next = messages.next();
  leave.abort();
  await expect(next).rejects.toMatchObject({ code: Code.Canceled });
});
