// Brain in a process of its own, as `brain serve` composes it, that ends itself where it is told to.
import pino from "pino";
import { readConfig } from "../../server/src/config.js";
import type { CommandStream } from "../../server/src/environments/host/command-stream.js";
import type { Journal } from "../../server/src/journal/port.js";
import type { Brain } from "../../server/src/runtime/brain.js";
import { type Server, startServer } from "../../server/src/server.js";
import { type Kill, KillPoints, type ServerPoint } from "./kill-points.js";
import { watchStalls } from "./stalls.js";
import { Witness } from "./witness.js";

export interface ServeOrder {
  readonly order: "serve";
  readonly name: string;
  readonly witnessFile: string;
  readonly apiToken: string;
  readonly flags: Readonly<Record<string, string>>;
  readonly kill?: Kill<ServerPoint>;
}

/** The same object, but for these members. */
function instead<T extends object>(of: T, members: Partial<T>): T {
  return new Proxy(of, {
    get(target, name) {
      if (name in members) return members[name as keyof T];
      const member: unknown = Reflect.get(target, name, target);
      return typeof member === "function" ? (member.bind(target) as unknown) : member;
    },
  });
}

function watchJournal(journal: Journal, points: KillPoints<ServerPoint>): Journal {
  return instead(journal, {
    async append(...asked) {
      points.pass("append.before");
      await journal.append(...asked);
      points.pass("append.durable");
    },
  });
}

function watchStream(stream: CommandStream, points: KillPoints<ServerPoint>): CommandStream {
  async function* passing(): ReturnType<CommandStream[typeof Symbol.asyncIterator]> {
    for await (const response of stream) {
      const isCommand = response.message.case === "command" && response.message.value.kind.case === "runTool";
      const isAnswer = response.message.case === "reportOutcome";
      if (isCommand) points.pass("command.before");
      yield response;
      // The route has asked for the next one: it has taken this one, and written it.
      if (isCommand) {
        points.pass("command.written");
        points.passSoon("command.flushed");
      }
      if (isAnswer) points.passSoon("report.answered");
    }
  }
  return instead(stream, { [Symbol.asyncIterator]: passing });
}

function watchBrain(brain: Brain, points: KillPoints<ServerPoint>): Brain {
  const { hosts, sessions } = brain;
  return instead(brain, {
    sessions: instead(sessions, {
      async callTool(...asked) {
        points.pass("call.read");
        const ending = await sessions.callTool(...asked);
        points.pass("call.before_answer");
        points.passSoon("call.answered");
        return ending;
      },
    }),
    hosts: instead(hosts, {
      async attach(...asked) {
        points.pass("attach.before");
        const stream = await hosts.attach(...asked);
        points.passSoon("attach.welcomed");
        return watchStream(stream, points);
      },
      heartbeat(...asked) {
        points.pass("heartbeat.read");
        return hosts.heartbeat(...asked);
      },
      async emit(...asked) {
        points.pass("emit.read");
        const sequence = await hosts.emit(...asked);
        points.pass("emit.before_answer");
        return sequence;
      },
      async report(...asked) {
        points.pass("report.read");
        const reported = await hosts.report(...asked);
        points.pass("report.before_answer");
        return reported;
      },
    }),
  });
}

let server: Server | undefined;

async function serve({ name, witnessFile, apiToken, flags, kill }: ServeOrder): Promise<void> {
  const witness = new Witness(witnessFile, name);
  const points = new KillPoints(kill, witness);
  watchStalls(witness);
  server = await startServer({
    config: readConfig({ listen: "127.0.0.1:0", ...flags }, {}),
    apiToken,
    log: pino(
      { level: "warn", base: { by: name }, formatters: { level: (level) => ({ level }) } },
      pino.destination({ fd: 2, sync: true }),
    ),
    onFatal: (error) => {
      process.stderr.write(`${error.message}\n`);
      process.exit(70);
    },
    wrapJournal: (journal) => watchJournal(journal, points),
    wrapBrain: (brain) => watchBrain(brain, points),
  });
  process.send?.({ event: "listening", url: server.url });
}

async function stop(): Promise<void> {
  await server?.close();
  process.exit(0);
}

process.on("message", (order: ServeOrder | { order: "stop" }) => {
  (order.order === "serve" ? serve(order) : stop()).catch((error: unknown) => {
    process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    process.exit(1);
  });
});
// Whoever started it is gone.
process.on("disconnect", () => process.exit(1));
process.send?.({ event: "ready" });
