import { toBinary } from "@bufbuild/protobuf";
import { DurationSchema, durationFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, it } from "vitest";
import { ConfigError, defaultConfig, environmentVariable, LIMITS, readConfig, SETTINGS } from "./config.js";

function problem(flags: Parameters<typeof readConfig>[0], environment: Parameters<typeof readConfig>[1] = {}): string {
  try {
    readConfig(flags, environment);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  throw new Error("nothing was refused");
}

describe("the configuration", () => {
  it("has the promised defaults when nothing is said", () => {
    expect(defaultConfig()).toMatchObject({
      listen: "127.0.0.1:8080",
      dataDir: "./brain-data",
      toolTimeoutMs: 120_000,
      hostWaitMs: 5_000,
      hostGraceMs: 30_000,
      heartbeatMs: 5_000,
      drainMs: 30_000,
      allowOrigin: [],
      journalWriter: "inline",
    });
  });

  it("has a flag of its own and a variable named after it for every setting", () => {
    const flags = Object.values(SETTINGS).map(({ flag }) => flag);
    expect(new Set(flags).size).toBe(flags.length);
    for (const flag of flags) expect(flag).toMatch(/^[a-z]+(-[a-z]+)*$/);
    expect(environmentVariable("tool-timeout")).toBe("BRAIN_TOOL_TIMEOUT");
  });

  it.each([
    ["10ms", 10],
    ["500ms", 500],
    ["30s", 30_000],
    ["1.5s", 1_500],
    ["5m", 300_000],
    ["2h", 7_200_000],
    ["1d", 86_400_000],
    ["3650d", LIMITS.timeoutMs],
  ])("reads the duration %s", (text, milliseconds) => {
    expect(readConfig({ toolTimeoutMs: text }, {}).toolTimeoutMs).toBe(milliseconds);
  });

  it.each(["soon", "0", "0s", "9ms", "-5s", "5", "5 s", "5S", "1e3ms", "NaNs", "Infinitys", "3651d", ".5s", "1s2s", "５s"])(
    "refuses the duration %j, naming the flag, what it holds and what it may hold",
    (text) => {
      const message = problem({ toolTimeoutMs: text });
      expect(message).toContain(`--tool-timeout: "${text}"`);
      expect(message).toMatch(/at least 10ms and at most 3650d such as 500ms, 30s, 5m/);
      expect(message).not.toContain("\n");
    },
  );

  it("reads durations to whole milliseconds, which every duration on the wire can carry", () => {
    for (const text of ["1.005s", "16.1s", "10.0000001ms", "0.0166667m"]) {
      const { heartbeatMs } = readConfig({ heartbeatMs: text, hostGraceMs: "1h" }, {});
      expect(Number.isSafeInteger(heartbeatMs)).toBe(true);
      expect(() => toBinary(DurationSchema, durationFromMs(heartbeatMs))).not.toThrow();
    }
  });

  it("takes a flag before a variable, and a variable before the default", () => {
    const environment = { BRAIN_TOOL_TIMEOUT: "7s", BRAIN_HOST_CONCURRENCY: "12" };
    expect(readConfig({}, environment)).toMatchObject({ toolTimeoutMs: 7_000, hostConcurrency: 12 });
    expect(readConfig({ toolTimeoutMs: "9s" }, environment)).toMatchObject({ toolTimeoutMs: 9_000, hostConcurrency: 12 });
    expect(readConfig({ toolTimeoutMs: undefined }, environment).toolTimeoutMs).toBe(7_000);
  });

  it("takes an empty variable for none", () => {
    expect(readConfig({}, { BRAIN_TOOL_TIMEOUT: "", BRAIN_LISTEN: "", BRAIN_ALLOW_ORIGIN: "" })).toEqual(defaultConfig());
  });

  it("names the variable when it was the variable that is wrong, and the flag when it was the flag", () => {
    expect(problem({}, { BRAIN_TOOL_TIMEOUT: "soon" })).toMatch(/^BRAIN_TOOL_TIMEOUT: "soon"/);
    expect(problem({ toolTimeoutMs: "later" }, { BRAIN_TOOL_TIMEOUT: "soon" })).toMatch(/^--tool-timeout: "later"/);
  });

  it.each(["0", "-1", "1.5", "many", "NaN", "Infinity", "9007199254740992"])("refuses the count %j, naming the flag", (text) => {
    expect(problem({ hostConcurrency: text })).toBe(`--host-concurrency: "${text}" is not a whole number of at least 1`);
  });

  it("refuses a word that is none of a setting's choices, naming them", () => {
    expect(problem({ journalWriter: "fast" })).toBe('--journal-writer: "fast" is none of inline, thread');
    expect(problem({}, { BRAIN_LOG_LEVEL: "loud" })).toBe('BRAIN_LOG_LEVEL: "loud" is none of debug, info, warn, error, silent');
  });

  it("reads a list from a repeated flag, or with commas from a variable", () => {
    expect(readConfig({ allowOrigin: ["https://a.example", "https://b.example"] }, {}).allowOrigin).toEqual([
      "https://a.example",
      "https://b.example",
    ]);
    expect(readConfig({}, { BRAIN_ALLOW_ORIGIN: "https://a.example, https://b.example," }).allowOrigin).toEqual([
      "https://a.example",
      "https://b.example",
    ]);
  });

  it("refuses a grace under five heartbeats, naming both flags and both values, whichever of the two was set", () => {
    expect(readConfig({ heartbeatMs: "1s", hostGraceMs: "5s" }, {})).toMatchObject({ heartbeatMs: 1_000, hostGraceMs: 5_000 });
    expect(problem({ heartbeatMs: "1s", hostGraceMs: "4999ms" })).toBe(
      "--host-grace 4999ms is under 5 heartbeats of 1000ms; raise it or lower --heartbeat",
    );
    expect(problem({ hostGraceMs: "24s" })).toMatch(/--host-grace 24000ms.*5000ms.*--heartbeat/);
    expect(problem({}, { BRAIN_HEARTBEAT: "7s" })).toMatch(/--host-grace 30000ms.*7000ms.*--heartbeat/);
  });

  it("refuses a certificate without its key, and a key without its certificate", () => {
    expect(problem({ tlsCert: "cert.pem" })).toBe("--tls-cert and --tls-key go together; give both or neither");
    expect(problem({}, { BRAIN_TLS_KEY: "key.pem" })).toBe("--tls-cert and --tls-key go together; give both or neither");
    expect(readConfig({ tlsCert: "cert.pem", tlsKey: "key.pem" }, {})).toMatchObject({ tlsCert: "cert.pem", tlsKey: "key.pem" });
  });
});

describe("the limits", () => {
  it("leave room: what is accepted fits a message, and a message fits a stock client", () => {
    const { valueBytes, configurationBytes, catalogueBytes, messageBytes, pageBytes, labels, labelBytes, streamBacklogBytes } = LIMITS;
    const stockClient = 4 * 1024 * 1024;
    expect(messageBytes).toBeLessThan(stockClient);
    // A command carries an input and its options.
    expect(valueBytes + configurationBytes).toBeLessThan(messageBytes);
    expect(catalogueBytes + 2 * labels * labelBytes).toBeLessThan(messageBytes);
    // A page may overshoot by one record of the largest kind.
    expect(pageBytes + valueBytes).toBeLessThan(messageBytes);
    expect(streamBacklogBytes).toBeGreaterThan(messageBytes);
  });
});
