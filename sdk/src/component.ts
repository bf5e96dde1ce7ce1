import { readFile } from "node:fs/promises";
import { invalidArgument, thrownMessage } from "./errors.js";

const BRAND = Symbol.for("aexhq.brain.component");

/** A WebAssembly Component, as the implementation of a Tool: a reference to its bytes, which are read when they are needed. */
export interface Component {
  readonly kind: "component";
  /** What messages call it. */
  readonly name: string;
  /** The bytes as they are now. @throws BrainError `invalid_argument` naming the file. */
  readonly read: () => Promise<Uint8Array>;
}

/**
 * Refers to a Component: a file of this machine, as in `component(new URL("./inspect.wasm", import.meta.url))`, or its
 * bytes, which are copied.
 */
export function component(source: URL | Uint8Array): Component {
  const reference = source instanceof URL ? inFile(source) : inMemory(source);
  Object.defineProperty(reference, BRAND, { value: true });
  return Object.freeze(reference);
}

export function isComponent(value: unknown): value is Component {
  return typeof value === "object" && value !== null && BRAND in value;
}

function inFile(url: URL): Component {
  if (url.protocol !== "file:") {
    throw invalidArgument(`component: ${url.href} is no file of this machine; fetch it, and give its bytes`);
  }
  const read = async (): Promise<Uint8Array> => {
    try {
      return await readFile(url);
    } catch (error) {
      throw invalidArgument(`The Component ${url.pathname} cannot be read: ${thrownMessage(error)}; build it, or correct the URL`);
    }
  };
  return { kind: "component", name: url.pathname, read };
}

function inMemory(bytes: Uint8Array): Component {
  if (!(bytes instanceof Uint8Array)) throw invalidArgument("component: expected the URL of a file, or its bytes as a Uint8Array");
  const copy = Uint8Array.from(bytes);
  return { kind: "component", name: `of ${copy.length} bytes`, read: () => Promise.resolve(Uint8Array.from(copy)) };
}
