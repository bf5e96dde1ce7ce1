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

/** Where functions that a process holds run: a Tool with `run` is placed here. */
export interface HostEnvironment {
  readonly name: string;
  readonly kind: "host";
  /** The host of another process; absent for the host of the Brain object that creates the session. */
  readonly hostId?: string;
}

/** The server's sandbox for Components, with what they may reach. */
export interface BrainEnvironment {
  readonly name: string;
  readonly kind: "brain";
  readonly filesystem?: { readonly workspace?: "read" | "write"; readonly scratch?: "read" | "write" };
  /** Origins. */
  readonly network?: readonly string[];
  /** Names. */
  readonly secrets?: readonly string[];
}

/** A service elsewhere that interprets what is placed in it. */
export interface RemoteEnvironment {
  readonly name: string;
  readonly kind: "remote";
  readonly url: string;
  /** JSON text that only the service reads. */
  readonly configurationJson?: string;
}

/** Where a Tool's implementation runs. Two values of one name must be equal within a session. */
export type Environment = HostEnvironment | BrainEnvironment | RemoteEnvironment;

/**
 * The Environment of functions that a process holds. With `hostId`, the functions of another process that is attached
 * as that host.
 *
 * @throws BrainError `invalid_argument` for a name that is none.
 * @example
 * const placed = lookup({ env: hostEnv({ name: "app" }) });
 */
export function hostEnv(options: { name: string; hostId?: string }): HostEnvironment {
  const { name, hostId } = options;
  checkName("Environment", name);
  if (hostId !== undefined && (typeof hostId !== "string" || hostId === "")) {
    throw invalidArgument(`Environment "${name}": hostId is empty; leave it out for this process's own host`);
  }
  return declaredEnvironment({ kind: "host", name, ...(hostId === undefined ? {} : { hostId }) });
}

/** What every function that makes an Environment returns, once it has checked it: branded and frozen. */
export function declaredEnvironment<E extends Environment>(environment: E): E {
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
