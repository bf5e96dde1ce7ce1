/**
 * Every limit and every flag of the server, and the only place that has numbers of this kind.
 *
 * `SETTINGS` can be set by flag or environment variable; `LIMITS` are part of the contract, so that what one
 * server accepted every client can read.
 */

const KIB = 1024;
const MIB = 1024 * KIB;

export const LIMITS = {
  /** Tool input, Tool output and event data, each, in bytes of UTF-8. */
  valueBytes: MIB,
  failureDetailsBytes: 64 * KIB,
  failureMessageBytes: 8 * KIB,
  /** A placement's configuration and descriptor together. */
  configurationBytes: 256 * KIB,
  schemaBytes: 256 * KIB,
  descriptionBytes: 64 * KIB,
  /** All definitions, configurations and Environments of a session. */
  catalogueBytes: MIB,
  /** Any Record, Command or response, encoded; below the 4 MiB of a stock gRPC client. */
  messageBytes: 3 * MIB,
  /** A page of a list, encoded; leaves room for one more record of the largest kind. */
  pageBytes: MIB,
  pageRecords: 1000,
  defaultPageRecords: 100,
  jsonDepth: 512,
  labels: 64,
  labelBytes: 256,
  eventKindLength: 128,
  failureCodeLength: 128,
  cancelReasonBytes: 1 * KIB,
  traceparentLength: 256,
  /** The longest span a deadline may lie ahead: ten years. */
  timeoutMs: 10 * 365 * 24 * 60 * 60 * 1000,
  /** Calls that wait for a receiver, of one host. */
  waitingPerHost: 1024,
  /** Bytes a command stream may lag behind before it is closed. */
  streamBacklogBytes: 16 * MIB,
  streamBacklogMessages: 10_000,
  heldCallsPerAttach: 20_000,
  servedToolsPerAttach: 10_000,
  violations: 10,
  /** Sessions without open calls that stay in memory. */
  idleSessions: 256,
  /** Instance ids of one host that were detached and are remembered, so that a late attach is refused. */
  detachedInstances: 10_000,
  journalLockWaitMs: 30_000,
  journalRetryMs: 250,
  /** What one transaction takes at most. */
  journalBatchAppends: 256,
  journalBatchBytes: 16 * MIB,
  /** A checkpoint runs when nothing was appended for this long, or when the log has grown to `journalLogBytes`. */
  journalIdleMs: 200,
  journalLogBytes: 16 * MIB,
  journalLogFileBytes: 32 * MIB,
  /** Files up to this size are checked through before the server listens, larger ones while it serves, the largest not. */
  journalQuickCheckBytes: 8 * MIB,
  journalThreadCheckBytes: 4096 * MIB,
  /** How long that waits, so that it does not stand in the way of the start. */
  journalThreadCheckAfterMs: 1000,
  journalCallPageBytes: 2 * MIB,
  /** What one step removes of a deleted session. */
  journalPurgeRows: 250,
  journalPurgeBytes: 4 * MIB,
  validationMs: 100,
  compilationMs: 1000,
  inlineValueBytes: 64 * KIB,
  validatorThreads: 2,
  validatorCacheEntries: 512,
  validatorQueue: 4096,
  streamsPerConnection: 2000,
  connections: 10_000,
  headerBytes: 64 * KIB,
  protocolDecisionMs: 5000,
  headersMs: 10_000,
  requestMs: 300_000,
  idleConnectionMs: 60_000,
  idleSessionMs: 30 * 60_000,
  sessionMemoryMib: 64,
  /** A request as it is read: its JSON form is longer than the binary one. */
  requestBytes: 16 * MIB,
  /** A response as it is written, in whichever form; pages and records keep to `messageBytes` in the binary one. */
  responseBytes: 9 * MIB,
  commentEveryMs: 15_000,
  keepAliveEveryMs: 15_000,
} as const;

type Setting =
  | { readonly kind: "duration"; readonly flag: string; readonly fallback: number; readonly least: number; readonly about: string }
  | { readonly kind: "count"; readonly flag: string; readonly fallback: number; readonly least: number; readonly about: string }
  | { readonly kind: "text"; readonly flag: string; readonly fallback: string; readonly about: string }
  | { readonly kind: "list"; readonly flag: string; readonly fallback: readonly string[]; readonly about: string }
  | {
      readonly kind: "choice";
      readonly flag: string;
      readonly fallback: string;
      readonly choices: readonly string[];
      readonly about: string;
    };

/** Milliseconds for durations. Down to 10 ms, so that tests are fast. */
export const SETTINGS = {
  listen: { kind: "text", flag: "listen", fallback: "127.0.0.1:8080", about: "address and port to listen on; port 0 picks a free one" },
  dataDir: { kind: "text", flag: "data-dir", fallback: "./brain-data", about: "directory of the journal; it belongs to one server" },
  apiTokenFile: { kind: "text", flag: "api-token-file", fallback: "", about: "file that holds the API token (or set BRAIN_API_TOKEN)" },
  publicUrl: { kind: "text", flag: "public-url", fallback: "", about: "URL that clients use, when a proxy stands before the server" },
  allowOrigin: { kind: "list", flag: "allow-origin", fallback: [], about: "web origin that may call from a browser; repeat for more" },
  tlsCert: { kind: "text", flag: "tls-cert", fallback: "", about: "PEM certificate chain; with --tls-key serves TLS" },
  tlsKey: { kind: "text", flag: "tls-key", fallback: "", about: "PEM private key" },
  journalWriter: {
    kind: "choice",
    flag: "journal-writer",
    fallback: "inline",
    choices: ["inline", "thread"],
    about: "where commits run; thread for disks whose flush takes a millisecond or more",
  },
  logLevel: {
    kind: "choice",
    flag: "log-level",
    fallback: "info",
    choices: ["debug", "info", "warn", "error", "silent"],
    about: "least level of the JSON lines on stderr",
  },
  toolTimeoutMs: {
    kind: "duration",
    flag: "tool-timeout",
    fallback: 120_000,
    least: 10,
    about: "timeout of a call when neither the call nor its session says one",
  },
  hostWaitMs: {
    kind: "duration",
    flag: "host-wait",
    fallback: 5000,
    least: 10,
    about: "how long a call waits while no instance that serves its Tool is attached",
  },
  hostGraceMs: {
    kind: "duration",
    flag: "host-grace",
    fallback: 30_000,
    least: 10,
    about: "silence after which an instance is gone; at least 5 heartbeats",
  },
  heartbeatMs: { kind: "duration", flag: "heartbeat", fallback: 5000, least: 10, about: "period of the heartbeats, both ways" },
  hostConcurrency: {
    kind: "count",
    flag: "host-concurrency",
    fallback: 1000,
    least: 1,
    about: "calls at once of an instance that names no number of its own",
  },
  drainMs: { kind: "duration", flag: "drain", fallback: 30_000, least: 10, about: "how long SIGTERM waits for calls in flight" },
} as const satisfies Record<string, Setting>;

export type Config = {
  -readonly [Name in keyof typeof SETTINGS]: (typeof SETTINGS)[Name]["kind"] extends "duration" | "count"
    ? number
    : (typeof SETTINGS)[Name]["kind"] extends "list"
      ? readonly string[]
      : string;
};

/** Thrown by {@link readConfig}: one line that names the flag. */
export class ConfigError extends Error {}

export function defaultConfig(): Config {
  return readConfig({}, {});
}

/** The environment variable of a flag: `--tool-timeout` is `BRAIN_TOOL_TIMEOUT`. */
export function environmentVariable(flag: string): string {
  return `BRAIN_${flag.toUpperCase().replaceAll("-", "_")}`;
}

/**
 * Flags win over environment variables, those over the defaults.
 * @throws ConfigError naming the flag or variable, what it holds and what it may hold.
 */
export function readConfig(
  flags: Readonly<Record<string, string | readonly string[] | undefined>>,
  environment: Readonly<Record<string, string | undefined>>,
): Config {
  const config: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries(SETTINGS) as [string, Setting][]) {
    const variable = environmentVariable(setting.flag);
    const flagged = flags[name];
    const source = flagged !== undefined ? `--${setting.flag}` : variable;
    const given = flagged ?? environment[variable];
    config[name] = given === undefined || given === "" ? setting.fallback : parseSetting(setting, source, given);
  }
  const parsed = config as Config;
  if (parsed.hostGraceMs < 5 * parsed.heartbeatMs) {
    throw new ConfigError(
      `--host-grace ${parsed.hostGraceMs}ms is under 5 heartbeats of ${parsed.heartbeatMs}ms; raise it or lower --heartbeat`,
    );
  }
  if ((parsed.tlsCert === "") !== (parsed.tlsKey === "")) {
    throw new ConfigError("--tls-cert and --tls-key go together; give both or neither");
  }
  return parsed;
}

function parseSetting(setting: Setting, source: string, given: string | readonly string[]): unknown {
  if (setting.kind === "list") {
    return typeof given === "string"
      ? given
          .split(",")
          .map((item) => item.trim())
          .filter((item) => item !== "")
      : given;
  }
  const text = typeof given === "string" ? given : given.join(",");
  if (setting.kind === "text") return text;
  if (setting.kind === "choice") {
    if (!setting.choices.includes(text)) throw new ConfigError(`${source}: "${text}" is none of ${setting.choices.join(", ")}`);
    return text;
  }
  if (setting.kind === "count") {
    const count = Number(text);
    if (!Number.isSafeInteger(count) || count < setting.least) {
      throw new ConfigError(`${source}: "${text}" is not a whole number of at least ${setting.least}`);
    }
    return count;
  }
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text);
  const units: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  // Whole ones: 1.005 s would be 1004.9999999999999 ms, which no duration on the wire can carry.
  const milliseconds = match === null ? Number.NaN : Math.round(Number(match[1]) * (units[match[2] ?? ""] ?? Number.NaN));
  if (!(milliseconds >= setting.least) || milliseconds > LIMITS.timeoutMs) {
    throw new ConfigError(`${source}: "${text}" is not a duration of at least ${setting.least}ms and at most 3650d such as 500ms, 30s, 5m`);
  }
  return milliseconds;
}
