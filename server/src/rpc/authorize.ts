import { createHash, timingSafeEqual } from "node:crypto";
import { HostService, SessionService, ToolCallService } from "@aexhq/brain-proto";
import { Health } from "@aexhq/brain-proto/grpc/health/v1/health_pb";
import { ServerReflection } from "@aexhq/brain-proto/grpc/reflection/v1/reflection_pb";
import { ServerReflection as ServerReflectionV1Alpha } from "@aexhq/brain-proto/grpc/reflection/v1alpha/reflection_pb";
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { createContextKey, type HandlerContext, type Interceptor } from "@connectrpc/connect";
import { assert } from "../core/assert.js";
import { quote } from "../core/names.js";
import { Refusal } from "../core/refusal.js";

/**
 * Who may call what.
 *
 * 1. Every RPC of every served service stands in the table below; one that does not is refused to everybody.
 * 2. A missing token, a wrong one and a malformed one are refused with the same words.
 * 3. Tokens are compared as SHA-256 digests in constant time, and appear in no log, message or record.
 * 4. A token that is presented must be right, also where none is asked for.
 */

/** Who is calling. An API token may do everything; a host token speaks for one host. */
export type Principal = { readonly kind: "api" } | { readonly kind: "host"; readonly hostId: string };

/** `anyone` asks for no token, `api` for the API token, `host` for the API token or any host's. */
export type Callers = "anyone" | "api" | "host";

type Table<Service extends DescService> = Record<keyof Service["method"], Callers>;

const health = { check: "anyone", list: "anyone", watch: "anyone" } as const satisfies Table<typeof Health>;
const reflection = { serverReflectionInfo: "api" } as const satisfies Table<typeof ServerReflection>;
const reflectionV1Alpha = { serverReflectionInfo: "api" } as const satisfies Table<typeof ServerReflectionV1Alpha>;

const sessions = {
  createSession: "api",
  getSession: "api",
  listSessions: "api",
  endSession: "api",
  deleteSession: "api",
  listRecords: "api",
  watchRecords: "api",
} as const satisfies Table<typeof SessionService>;

const calls = {
  callTool: "api",
  getToolCall: "api",
  listToolCalls: "api",
  cancelToolCall: "api",
} as const satisfies Table<typeof ToolCallService>;

const hosts = {
  registerHost: "api",
  watchCommands: "host",
  attach: "host",
  heartbeat: "host",
  emitEvent: "host",
  reportOutcome: "host",
  detach: "host",
  getHost: "api",
  listHosts: "api",
  deleteHost: "api",
} as const satisfies Table<typeof HostService>;

const CALLERS: ReadonlyMap<DescService, Readonly<Record<string, Callers>>> = new Map<DescService, Readonly<Record<string, Callers>>>([
  [SessionService, sessions],
  [ToolCallService, calls],
  [HostService, hosts],
  [Health, health],
  [ServerReflection, reflection],
  [ServerReflectionV1Alpha, reflectionV1Alpha],
]);

/** Everything the port serves: what reflection lists and health answers for. */
export const SERVED_SERVICES: readonly DescService[] = [...CALLERS.keys()];

/** Undefined for an RPC that is not in the table. */
export function callersOf(method: DescMethod): Callers | undefined {
  const table = CALLERS.get(method.parent);
  return table !== undefined && Object.hasOwn(table, method.localName) ? table[method.localName] : undefined;
}

export interface AuthenticationOptions {
  /** Without it the server asks for no token. */
  readonly apiToken?: string;
  /** The host whose token has this SHA-256. */
  findHostByToken(sha256: Uint8Array): Promise<{ readonly hostId: string } | undefined>;
}

/** Takes the headers of a request of either kind. @throws Refusal `unauthenticated` */
export type Authenticate = (headers: Headers | { readonly authorization?: string | undefined }) => Promise<Principal>;

export function createAuthenticate(options: AuthenticationOptions): Authenticate {
  const apiDigest = options.apiToken === undefined ? undefined : digest(options.apiToken);
  return async (headers) => {
    const value = (headers instanceof Headers ? headers.get("authorization") : headers.authorization) ?? undefined;
    if (value === undefined) {
      if (apiDigest === undefined) return { kind: "api" };
      throw unauthenticated();
    }
    const token = /^Bearer +([^\s,]+)$/i.exec(value)?.[1];
    if (token === undefined) throw unauthenticated();
    const presented = digest(token);
    if (apiDigest !== undefined && timingSafeEqual(presented, apiDigest)) return { kind: "api" };
    const host = await options.findHostByToken(presented);
    if (host === undefined) throw unauthenticated();
    return { kind: "host", hostId: host.hostId };
  };
}

function digest(token: string): Buffer {
  return createHash("sha256").update(token, "utf8").digest();
}

function unauthenticated(): Refusal {
  return new Refusal(
    "unauthenticated",
    "no valid token came with this request; send the header 'Authorization: Bearer TOKEN' with the server's API token, or with the host's own token where a host calls",
  );
}

const principalKey = createContextKey<Principal | undefined>(undefined, { description: "principal" });

/** The caller of an RPC that asks for a token. */
export function principalOf(context: Pick<HandlerContext, "values">): Principal {
  const principal = context.values.get(principalKey);
  assert(principal !== undefined, "an RPC that reads its caller has passed authorization");
  return principal;
}

/** @throws Refusal `permission_denied` unless the caller may speak for this host. */
export function requireHost(principal: Principal, hostId: string): void {
  if (principal.kind === "api" || principal.hostId === hostId) return;
  throw new Refusal(
    "permission_denied",
    `the token of this request belongs to another host than ${quote(hostId)}; use the token that RegisterHost returned for it, or the API token`,
    { host_id: hostId.slice(0, 256) },
  );
}

/** @throws Refusal `permission_denied` unless the caller has the API token (or the server asks for none). */
export function requireApi(principal: Principal, what: string): void {
  if (principal.kind === "api") return;
  throw new Refusal("permission_denied", `a host's token may not call ${what}; use the API token`, { called: what });
}

/** Refuses by the table, and leaves the caller where {@link principalOf} finds it. Comes inside `refusals`. */
export function authorize(authenticate: Authenticate): Interceptor {
  return (next) => async (req) => {
    const where = `${req.service.typeName}/${req.method.name}`;
    const callers = callersOf(req.method);
    if (callers === undefined) throw new Refusal("permission_denied", `${where} may be called by nobody`, { called: where });
    if (callers === "anyone") return next(req);
    const principal = await authenticate(req.header);
    if (callers === "api") requireApi(principal, where);
    req.contextValues.set(principalKey, principal);
    return next(req);
  };
}
