import * as net from "node:net";
import { cors } from "@connectrpc/connect";
import { quote } from "../core/names.js";
import { Refusal } from "../core/refusal.js";
import { type HttpRequest, type HttpResponse, pathOf } from "./exchange.js";
import { sendRefusal } from "./refusal-response.js";

/**
 * Who may speak to this port at all, judged before any route and any token.
 *
 * 1. `Host` or `:authority` (both, where both are sent) names the address the connection came to, the configured
 *    listen host, a loopback name or the public URL, with a port that is ours or absent. Otherwise a web page
 *    could reach a loopback server under a name of its own (DNS rebinding).
 * 2. An `Origin` is the server's own or allow-listed. A request that a browser marks as coming from another site
 *    without naming an origin (an image, a script, a link) reaches nothing under `/v1`.
 * 3. Only allow-listed origins get CORS headers, with the origin spelled out; never `*`, never credentials.
 */

export interface GuardOptions {
  /** `--listen`'s host. */
  readonly host: string;
  /** `--public-url`; empty for none. */
  readonly publicUrl: string;
  /** `--allow-origin`. */
  readonly allowOrigins: readonly string[];
}

/** What the guard looks at, and nothing else. Header values are as sent; undefined where absent. */
export interface Facts {
  readonly method: string;
  readonly path: string;
  readonly secure: boolean;
  readonly localAddress: string;
  readonly localPort: number;
  readonly host: string | undefined;
  readonly authority: string | undefined;
  readonly origin: string | undefined;
  readonly requestedMethod: string | undefined;
  readonly fetchSite: string | undefined;
  readonly fetchMode: string | undefined;
}

export type Verdict =
  | { readonly type: "pass"; readonly allowedOrigin?: string }
  | { readonly type: "preflight"; readonly allowedOrigin: string }
  | { readonly type: "refuse"; readonly httpStatus: number; readonly refusal: Refusal };

/** True when the request may go on; otherwise it has been answered. */
export type Guard = (req: HttpRequest, res: HttpResponse) => boolean;

/** How long a browser may remember a preflight, in seconds; browsers cap it at about this. */
const PREFLIGHT_SECONDS = "7200";
const ALLOWED_METHODS = cors.allowedMethods.join(", ");
const ALLOWED_HEADERS = [...cors.allowedHeaders, "Authorization"].join(", ");
const EXPOSED_HEADERS = cors.exposedHeaders.join(", ");

/** @throws Error naming the flag when a URL or an origin cannot be one. */
export function createGuard(options: GuardOptions): Guard {
  const judge = createJudge(options);
  return (req, res) => {
    const verdict = judge(factsOf(req));
    switch (verdict.type) {
      case "pass":
        if (verdict.allowedOrigin !== undefined) {
          allow(res, verdict.allowedOrigin);
          res.setHeader("Access-Control-Expose-Headers", EXPOSED_HEADERS);
        }
        return true;
      case "preflight":
        allow(res, verdict.allowedOrigin);
        res.setHeader("Access-Control-Allow-Methods", ALLOWED_METHODS);
        res.setHeader("Access-Control-Allow-Headers", ALLOWED_HEADERS);
        res.setHeader("Access-Control-Max-Age", PREFLIGHT_SECONDS);
        res.writeHead(204).end();
        return false;
      case "refuse":
        sendRefusal(req, res, verdict.refusal, verdict.httpStatus);
        return false;
      default:
        verdict satisfies never;
        return false;
    }
  };
}

function allow(res: HttpResponse, origin: string): void {
  res.setHeader("Access-Control-Allow-Origin", origin);
  res.setHeader("Vary", "Origin");
}

function factsOf(req: HttpRequest): Facts {
  const { headers, socket } = req;
  return {
    method: req.method ?? "",
    path: pathOf(req),
    secure: "encrypted" in socket && socket.encrypted === true,
    localAddress: socket.localAddress ?? "",
    localPort: socket.localPort ?? 0,
    host: headers.host,
    authority: single(headers[":authority"]),
    origin: headers.origin,
    requestedMethod: headers["access-control-request-method"],
    fetchSite: single(headers["sec-fetch-site"]),
    fetchMode: single(headers["sec-fetch-mode"]),
  };
}

function single(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(",") : value;
}

/** The rules without the wire. @throws Error naming the flag when a URL or an origin cannot be one. */
export function createJudge(options: GuardOptions): (facts: Facts) => Verdict {
  const publicUrl = options.publicUrl === "" ? undefined : parsePublicUrl(options.publicUrl);
  const names = new Set(["localhost", canonicalName(options.host)]);
  if (publicUrl !== undefined) names.add(canonicalName(publicUrl.hostname));
  const publicPort = publicUrl === undefined ? undefined : Number(publicUrl.port || (publicUrl.protocol === "https:" ? 443 : 80));
  const allowedOrigins = new Set(options.allowOrigins.map(parseAllowedOrigin));

  const namesThisServer = (value: string | undefined, facts: Facts): boolean => {
    const parsed = parseAuthority(value);
    if (parsed === undefined) return false;
    if (parsed.port !== undefined && parsed.port !== facts.localPort && parsed.port !== publicPort) return false;
    return names.has(parsed.name) || isLoopback(parsed.name) || parsed.name === canonicalName(facts.localAddress);
  };

  const misdirected = (facts: Facts): Refusal | undefined => {
    const sent = [facts.authority, facts.host].filter((value) => value !== undefined);
    const foreign = sent.length === 0 ? "" : sent.find((value) => !namesThisServer(value, facts));
    if (foreign === undefined) return undefined;
    const header = facts.authority === undefined ? "Host" : "Host or :authority";
    return new Refusal(
      "misdirected_request",
      `the request's ${header} ${quote(foreign)} does not name this server; use the address it listens on, or start it with --public-url set to the URL that clients use`,
      { host: foreign.slice(0, 256) },
    );
  };

  const ownOrigin = (origin: string, facts: Facts): boolean => {
    const host = facts.authority ?? facts.host ?? "";
    return origin === originOf(`${facts.secure ? "https" : "http"}://${host}`) || (publicUrl !== undefined && origin === publicUrl.origin);
  };

  const notAllowed = (what: string, origin: string): Verdict => ({
    type: "refuse",
    httpStatus: 403,
    refusal: new Refusal(
      "origin_not_allowed",
      `${what} may not call this server; if it should, start the server with --allow-origin and that origin`,
      { origin: origin.slice(0, 256) },
    ),
  });

  return (facts) => {
    const refusal = misdirected(facts);
    if (refusal !== undefined) return { type: "refuse", httpStatus: 421, refusal };

    const { origin } = facts;
    if (origin === undefined) {
      const fromElsewhere = facts.fetchSite === "cross-site" || facts.fetchSite === "same-site";
      const followedLink = facts.fetchMode === "navigate" && facts.method === "GET" && !facts.path.startsWith("/v1/");
      if (fromElsewhere && !followedLink) return notAllowed("a page of another site that names no origin", "");
      return { type: "pass" };
    }
    if (ownOrigin(origin, facts)) return { type: "pass" };
    if (!allowedOrigins.has(origin)) return notAllowed(`a web page of origin ${quote(origin)}`, origin);
    if (facts.method === "OPTIONS" && facts.requestedMethod !== undefined) return { type: "preflight", allowedOrigin: origin };
    return { type: "pass", allowedOrigin: origin };
  };
}

/** Host and port of a `Host` header: lower case, no brackets, no trailing dot, IPv6 in its shortest form. */
function parseAuthority(value: string | undefined): { name: string; port?: number } | undefined {
  const match = /^(\[[0-9A-Fa-f:.]{2,64}\]|[A-Za-z0-9._-]{1,255})(?::([0-9]{1,5}))?$/.exec(value ?? "");
  if (match === null) return undefined;
  const name = canonicalName(match[1] ?? "");
  return match[2] === undefined ? { name } : { name, port: Number(match[2]) };
}

function canonicalName(host: string): string {
  const bare = host.startsWith("[") ? host.slice(1, -1) : host;
  if (net.isIPv6(bare)) {
    const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(bare);
    // Scoped addresses (fe80::1%eth0) have no place in a URL.
    return mapped?.[1] ?? new URL(`http://[${bare.split("%", 1)[0]}]`).hostname.slice(1, -1);
  }
  return bare.toLowerCase().replace(/\.$/, "");
}

function isLoopback(name: string): boolean {
  return name === "::1" || (net.isIPv4(name) && name.startsWith("127."));
}

function originOf(url: string): string | undefined {
  return URL.canParse(url) ? new URL(url).origin : undefined;
}

function parsePublicUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.username !== "" || url.password !== "") {
    throw new Error(`--public-url: ${quote(text)} is no http or https URL; write it like https://brain.example.com`);
  }
  return url;
}

function parseAllowedOrigin(text: string): string {
  // `*` and `null` would stand for pages nobody has named.
  if (!/^https?:\/\//i.test(text) || originOf(text) === undefined || originOf(text) !== text.toLowerCase()) {
    throw new Error(
      `--allow-origin: ${quote(text)} is no origin; write scheme, host and port as a browser sends them, like https://app.example.com`,
    );
  }
  return originOf(text) ?? text;
}
