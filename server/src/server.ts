/** The composition of the server: the one file that knows every room. */
import { readFileSync } from "node:fs";
import { type Config, ConfigError, LIMITS } from "./config.js";
import { createGuard } from "./http/guard.js";
import { openListener } from "./http/listener.js";
import { createMetrics } from "./http/metrics.js";
import { createHttpHandler } from "./http/server.js";
import type { Journal } from "./journal/port.js";
import { openSqliteJournal } from "./journal/sqlite/open-journal.js";
import { createAuthenticate, SERVED_SERVICES } from "./rpc/authorize.js";
import { createHealth } from "./rpc/health.js";
import { commands, registerHostService } from "./rpc/host-service.js";
import { registerSessionService } from "./rpc/session-service.js";
import { registerToolCallService } from "./rpc/tool-call-service.js";
import { type Brain, createBrain } from "./runtime/brain.js";
import { type Clock, systemClock } from "./runtime/clock.js";
import type { Log } from "./runtime/log.js";
import { createValidator } from "./validation/validator.js";
import { VERSION } from "./version.js";

export interface ServerOptions {
  readonly config: Config;
  /** Without it a loopback server asks for no token. */
  readonly apiToken: string | undefined;
  readonly log: Log;
  /** The journal can no longer be trusted: the process is to end with this message. */
  readonly onFatal: (error: Error) => void;
  readonly clock?: Clock;
  /** Stands between Brain and its journal; tests fail appends with it. */
  readonly wrapJournal?: (journal: Journal) => Journal;
  /** Stands between the RPCs and Brain; tests end the process between two steps of a call with it. */
  readonly wrapBrain?: (brain: Brain) => Brain;
  /** Most pages of 4 KiB the journal may have; tests fill a journal with it. */
  readonly maxJournalPages?: number;
}

export interface Server {
  /** What a client on this machine writes, e.g. `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly brain: Brain;
  readonly journal: Journal;
  /** Takes no new work, lets calls in flight finish within the drain time, closes every stream and the journal. */
  close(): Promise<void>;
}

/** Starts a server that can serve when this resolves. @throws Error with one plain line for a person */
export async function startServer(options: ServerOptions): Promise<Server> {
  const { config, apiToken, log } = options;
  const clock = options.clock ?? systemClock;
  const { host, port } = parseListen(config.listen);
  if (apiToken === undefined && !isLoopback(host)) {
    throw new ConfigError(
      `--listen ${config.listen} can be reached from other machines; set BRAIN_API_TOKEN or --api-token-file, or listen on 127.0.0.1`,
    );
  }
  const opened = await openSqliteJournal({
    directory: config.dataDir,
    clock,
    limits: LIMITS,
    mode: config.journalWriter === "thread" ? "thread" : "inline",
    onFatal: options.onFatal,
    log,
    ...(options.maxJournalPages === undefined ? {} : { maxPages: options.maxJournalPages }),
  });
  const journal = options.wrapJournal?.(opened) ?? opened;
  const validator = createValidator(LIMITS);
  try {
    const created = createBrain({ journal, validator, clock, config, log, serverVersion: VERSION });
    const brain = options.wrapBrain?.(created) ?? created;
    const recovered = await brain.recover();
    if (recovered > 0) log.info({ open_calls: recovered }, "took up the open calls of an earlier process");

    const authenticate = createAuthenticate({
      ...(apiToken === undefined ? {} : { apiToken }),
      findHostByToken: (sha256) => journal.findHostByToken(sha256),
    });
    const health = createHealth(SERVED_SERVICES);
    const shutdown = new AbortController();
    const metrics = createMetrics();
    metrics.counter("brain_journal_flushes_total", "Commits of the journal that were flushed.", () => journal.flushCount);
    metrics.gauge("brain_open_calls", "Calls without an ending, waiting ones included.", () => brain.sessions.openCalls);
    const handler = createHttpHandler({
      routes: (router) => {
        registerSessionService(router, brain);
        registerToolCallService(router, brain);
        registerHostService(router, brain, log);
      },
      guard: createGuard({ host, publicUrl: config.publicUrl, allowOrigins: config.allowOrigin }),
      authenticate,
      attach: (hostId, attachment, signal) => commands(brain.hosts, hostId, attachment, signal),
      health,
      metrics,
      shutdownSignal: shutdown.signal,
      version: VERSION,
      clock,
      log,
      limits: { commentEveryMs: LIMITS.commentEveryMs, requestBytes: LIMITS.requestBytes, responseBytes: LIMITS.responseBytes },
    });
    const listener = await openListener({
      host,
      port,
      handler,
      limits: LIMITS,
      log,
      ...(config.tlsCert === "" ? {} : { tls: { cert: readFileSync(config.tlsCert, "utf8"), key: readFileSync(config.tlsKey, "utf8") } }),
    });
    metrics.gauge("brain_connections", "Open connections.", () => listener.connectionCount);
    brain.listening();
    log.info({ url: listener.url, data_dir: config.dataDir }, "brain listens");

    let closing: Promise<void> | undefined;
    const close = async (): Promise<void> => {
      health.drain();
      await brain.drain(config.drainMs);
      shutdown.abort();
      await listener.close(CLOSE_CONNECTIONS_MS);
      await validator.close();
      await journal.close();
    };
    return {
      url: listener.url,
      brain,
      journal,
      close: () => {
        closing ??= close();
        return closing;
      },
    };
  } catch (error) {
    await validator.close();
    await journal.close();
    throw error;
  }
}

/** How long peers may take to notice that the server goes, once nothing is in flight. */
const CLOSE_CONNECTIONS_MS = 1000;

function parseListen(listen: string): { host: string; port: number } {
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(listen);
  const port = Number(match?.[3]);
  if (match === null || port > 65_535)
    throw new ConfigError(`--listen: "${listen}" is not ADDRESS:PORT such as 127.0.0.1:8080 or [::1]:8080`);
  return { host: match[1] ?? match[2] ?? "", port };
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/.test(host);
}
