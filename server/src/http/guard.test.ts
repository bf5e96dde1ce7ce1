import { describe, expect, test } from "vitest";
import { createJudge, type Facts, type GuardOptions } from "./guard.js";

const OPTIONS: GuardOptions = { host: "127.0.0.1", publicUrl: "https://brain.example.com", allowOrigins: ["https://app.example.com"] };

const FACTS: Facts = {
  method: "POST",
  path: "/brain.v1.SessionService/ListSessions",
  secure: false,
  localAddress: "127.0.0.1",
  localPort: 8080,
  host: "localhost:8080",
  authority: undefined,
  origin: undefined,
  requestedMethod: undefined,
  fetchSite: undefined,
  fetchMode: undefined,
};

function judge(facts: Partial<Facts>, options: Partial<GuardOptions> = {}): string {
  const verdict = createJudge({ ...OPTIONS, ...options })({ ...FACTS, ...facts });
  if (verdict.type === "refuse") return `${verdict.httpStatus} ${verdict.refusal.reason}`;
  if (verdict.type === "preflight") return `preflight ${verdict.allowedOrigin}`;
  return verdict.allowedOrigin === undefined ? "pass" : `pass ${verdict.allowedOrigin}`;
}

describe("the host", () => {
  test.each([
    "localhost:8080",
    "LocalHost:8080",
    "localhost.:8080",
    "localhost",
    "127.0.0.1:8080",
    "127.9.9.9:8080",
    "[::1]:8080",
    "[0:0:0:0:0:0:0:1]:8080",
    "[::ffff:127.0.0.1]:8080",
    "brain.example.com",
    "brain.example.com:443",
    "brain.example.com:8080",
  ])("%s names this server", (host) => {
    expect(judge({ host })).toBe("pass");
  });

  test.each([
    "evil.example.com",
    "evil.example.com:8080",
    "localhost.evil.example.com:8080",
    "127.0.0.1.evil.example.com:8080",
    "127.0.0.1.nip.io",
    "localhost:9090",
    "192.168.1.7:8080",
    "[::2]:8080",
    "localhost:8080, evil.example.com",
    "localhost:8080@evil.example.com",
    "evil.example.com/localhost:8080",
    "localhost:",
    "localhost:080800",
    "local host",
    "lòcalhost",
    "[::1",
    "",
  ])("%s does not name this server", (host) => {
    expect(judge({ host })).toBe("421 misdirected_request");
  });

  test("the address that the connection came to names this server, whatever it listens on", () => {
    expect(judge({ host: "192.168.1.7:8080", localAddress: "192.168.1.7" }, { host: "0.0.0.0" })).toBe("pass");
    expect(judge({ host: "192.168.1.7:8080", localAddress: "::ffff:192.168.1.7" }, { host: "::" })).toBe("pass");
    expect(judge({ host: "[2001:db8::1]:8080", localAddress: "2001:db8:0::1" }, { host: "::" })).toBe("pass");
    expect(judge({ host: "192.168.1.8:8080", localAddress: "192.168.1.7" }, { host: "0.0.0.0" })).toBe("421 misdirected_request");
  });

  test("a name to listen on names this server", () => {
    expect(judge({ host: "Brain.Local:8080" }, { host: "brain.local" })).toBe("pass");
  });

  test("a request without any host is refused, and of two that differ both must name this server", () => {
    expect(judge({ host: undefined })).toBe("421 misdirected_request");
    expect(judge({ host: undefined, authority: "localhost:8080" })).toBe("pass");
    expect(judge({ host: "evil.example.com", authority: "localhost:8080" })).toBe("421 misdirected_request");
    expect(judge({ host: "localhost:8080", authority: "evil.example.com" })).toBe("421 misdirected_request");
  });

  test("the refusal shows the value, bounded and escaped, and says what to do", () => {
    const verdict = createJudge(OPTIONS)({ ...FACTS, host: `evil\u001b[31m${"x".repeat(5000)}` });
    if (verdict.type !== "refuse") throw new Error("not refused");
    expect(verdict.refusal.message).toContain('"evil\\u001b[31mxxx');
    expect(verdict.refusal.message).toContain("--public-url");
    expect(verdict.refusal.message.length).toBeLessThan(400);
  });
});

describe("the origin", () => {
  test("no origin, as from every program that is no browser, passes", () => {
    expect(judge({})).toBe("pass");
  });

  test("the server's own origins pass and get no CORS headers", () => {
    expect(judge({ origin: "http://localhost:8080" })).toBe("pass");
    expect(judge({ origin: "http://127.0.0.1:8080", host: "127.0.0.1:8080" })).toBe("pass");
    expect(judge({ origin: "https://brain.example.com" })).toBe("pass");
    expect(judge({ origin: "https://localhost:8080", secure: true })).toBe("pass");
    expect(judge({ origin: "http://localhost", host: "localhost:80", localPort: 80 })).toBe("pass");
  });

  test.each([
    "http://localhost:3000",
    "https://localhost:8080",
    "http://127.0.0.1:8080",
    "https://evil.example.com",
    "null",
    "*",
    "",
    "file://",
  ])("%s is refused", (origin) => {
    expect(judge({ origin })).toBe("403 origin_not_allowed");
  });

  test("an allow-listed origin passes with itself as the CORS origin", () => {
    expect(judge({ origin: "https://app.example.com" })).toBe("pass https://app.example.com");
    expect(judge({ origin: "https://app.example.com", fetchSite: "cross-site" })).toBe("pass https://app.example.com");
    expect(judge({ origin: "https://app.example.com.evil.com" })).toBe("403 origin_not_allowed");
  });

  test("a preflight is answered for an allow-listed origin only", () => {
    const preflight = { method: "OPTIONS", requestedMethod: "POST" };
    expect(judge({ ...preflight, origin: "https://app.example.com" })).toBe("preflight https://app.example.com");
    expect(judge({ ...preflight, origin: "https://evil.example.com" })).toBe("403 origin_not_allowed");
  });

  test("an allow-listed origin does not excuse a foreign host", () => {
    expect(judge({ origin: "https://app.example.com", host: "evil.example.com" })).toBe("421 misdirected_request");
  });
});

describe("a page of another site that names no origin", () => {
  const image = { method: "GET", path: "/v1/hosts/h/commands", fetchMode: "no-cors" };

  test("an image or a script of another site reaches nothing", () => {
    expect(judge({ ...image, fetchSite: "cross-site" })).toBe("403 origin_not_allowed");
    expect(judge({ ...image, fetchSite: "same-site" })).toBe("403 origin_not_allowed");
    expect(judge({ ...image, path: "/", fetchSite: "cross-site" })).toBe("403 origin_not_allowed");
  });

  test("a link that is followed reaches pages, and nothing under /v1", () => {
    expect(judge({ method: "GET", path: "/", fetchSite: "cross-site", fetchMode: "navigate" })).toBe("pass");
    expect(judge({ ...image, fetchSite: "cross-site", fetchMode: "navigate" })).toBe("403 origin_not_allowed");
    expect(judge({ method: "POST", path: "/", fetchSite: "cross-site", fetchMode: "navigate" })).toBe("403 origin_not_allowed");
  });

  test("what a browser marks as its own or as typed in passes", () => {
    expect(judge({ ...image, fetchSite: "same-origin" })).toBe("pass");
    expect(judge({ ...image, fetchSite: "none", fetchMode: "navigate" })).toBe("pass");
  });
});

describe("flags that cannot be meant", () => {
  test.each([
    "*",
    "null",
    "app.example.com",
    "https://app.example.com/",
    "https://app.example.com/path",
    "ftp://app.example.com",
    "https://a b",
  ])("--allow-origin %s is refused by name", (origin) => {
    expect(() => createJudge({ ...OPTIONS, allowOrigins: [origin] })).toThrow("--allow-origin");
  });

  test.each(["brain.example.com", "ftp://brain.example.com", "https://user:secret@brain.example.com"])(
    "--public-url %s is refused by name",
    (publicUrl) => {
      expect(() => createJudge({ ...OPTIONS, publicUrl })).toThrow("--public-url");
    },
  );
});
