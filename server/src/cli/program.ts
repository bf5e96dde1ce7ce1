import { readFileSync } from "node:fs";
import { Command, Option } from "commander";
import pino from "pino";
import { type Config, ConfigError, environmentVariable, readConfig, SETTINGS } from "../config.js";
import { startServer } from "../server.js";
import { VERSION } from "../version.js";

/** The `brain` command. */
export function createProgram(): Command {
  const program = new Command("brain").description("Brain: a durable runtime for agent Tools.").version(VERSION);
  const serve = program.command("serve").description("Run the server until SIGTERM or SIGINT.");
  for (const setting of Object.values(SETTINGS)) {
    const shown = setting.fallback === "" || setting.kind === "list" ? "" : ` (default ${describe(setting.fallback, setting.kind)})`;
    const option = new Option(
      `--${setting.flag} <${setting.kind === "list" ? "value..." : setting.kind}>`,
      `${setting.about}${shown} [${environmentVariable(setting.flag)}]`,
    );
    serve.addOption(option);
  }
  serve.action(async (flags: Record<string, string | string[]>) => {
    await runServer(configOf(flags), process.env);
  });
  return program;
}

/** Runs the command; what stops it is said in one plain line, the stack is for bugs. */
export async function runProgram(argv: readonly string[]): Promise<void> {
  try {
    await createProgram().parseAsync(argv);
  } catch (error) {
    process.stderr.write(`brain: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 1;
  }
}

function describe(fallback: unknown, kind: string): string {
  return kind === "duration" ? `${Number(fallback) / 1000}s` : String(fallback);
}

/** Commander names its options by their flag; the config by its own words. */
function configOf(flags: Record<string, string | string[]>): Config {
  const byName: Record<string, string | string[] | undefined> = {};
  for (const [name, setting] of Object.entries(SETTINGS)) {
    const camel = setting.flag.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
    byName[name] = flags[camel];
  }
  return readConfig(byName, process.env);
}

async function runServer(config: Config, environment: NodeJS.ProcessEnv): Promise<void> {
  const log = pino(
    { level: config.logLevel, base: {}, timestamp: pino.stdTimeFunctions.isoTime, formatters: { level: (level) => ({ level }) } },
    pino.destination({ fd: 2, sync: true }),
  );
  const server = await startServer({
    config,
    apiToken: readApiToken(config, environment),
    log,
    onFatal: (error) => {
      log.error({ err: error }, error.message);
      process.exit(70);
    },
  });
  let stopping = false;
  const stop = (signal: NodeJS.Signals): void => {
    if (stopping) {
      log.warn({ signal }, "stopping at once; open calls are taken up at the next start");
      process.exit(1);
    }
    stopping = true;
    log.info({ signal }, "draining: calls in flight may finish, new ones are refused");
    server.close().then(
      () => process.exit(0),
      (error: unknown) => {
        log.error({ err: error }, "the server did not stop cleanly");
        process.exit(1);
      },
    );
  };
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  // Last: whoever reads this line may send a signal at once.
  process.stdout.write(`brain listening on ${server.url}\n`);
}

function readApiToken(config: Config, environment: NodeJS.ProcessEnv): string | undefined {
  const source = config.apiTokenFile === "" ? "BRAIN_API_TOKEN" : `--api-token-file ${config.apiTokenFile}`;
  let token = environment["BRAIN_API_TOKEN"];
  if (config.apiTokenFile !== "") {
    try {
      token = readFileSync(config.apiTokenFile, "utf8");
    } catch (error) {
      throw new ConfigError(`${source} cannot be read: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  if (token === undefined) return undefined;
  token = token.trim();
  if (token === "" || /[\s,]/.test(token)) throw new ConfigError(`${source} is empty or has white space or commas; put one token there`);
  return token;
}
