import { invalidArgument } from "./errors.js";
import { canonicalJson } from "./json.js";

const BRAND = Symbol.for("aexhq.brain.environment");

/** Names of Tools and Environments. */
const NAME = /^[A-Za-z0-9_-]{1,64}$/;

/** Refuses a name outside the rule, saying which and of what. */
export function checkName(of: "Tool" | "Environment", name: unknown): asserts name is string {
  if (typeof name === "string" && NAME.test(name)) return;
  const shown = typeof name === "string" ? JSON.stringify(name.slice(0, 80)) : String(name);
  throw invalidArgument(`${of} name ${shown} is not 1 to 64 letters, digits, "_" or "-"; rename it`);
}

/** Where a Tool's implementation runs. Two values of one name must be equal within a session. */
export interface Environment {
  readonly name: string;
  readonly kind: "host";
  /** The host of another process; absent for the host of the Brain object that creates the session. */
  readonly hostId?: string;
}

/**
 * The Environment of functions that a process holds. With `hostId`, the functions of another process that is attached
 * as that host.
 */
export function hostEnv(options: { name: string; hostId?: string }): Environment {
  checkName("Environment", options.name);
  if (options.hostId !== undefined && (typeof options.hostId !== "string" || options.hostId === "")) {
    throw invalidArgument(`Environment "${options.name}": hostId is empty; leave it out for this process's own host`);
  }
  const environment = {
    kind: "host" as const,
    name: options.name,
    ...(options.hostId === undefined ? {} : { hostId: options.hostId }),
  };
  Object.defineProperty(environment, BRAND, { value: true });
  return Object.freeze(environment);
}

export function isEnvironment(value: unknown): value is Environment {
  return typeof value === "object" && value !== null && BRAND in value;
}

/** One text for equal Environments, and what messages show of a differing pair. */
export function environmentText(environment: Environment): string {
  return canonicalJson(environment);
}
