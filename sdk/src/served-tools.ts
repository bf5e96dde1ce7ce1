import { type ServedTool, ServedToolSchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { BrainError } from "./errors.js";
import type { DeclaredTool } from "./tool.js";

/**
 * The functions a process holds for Brain.
 *
 * 1. A function held for a session wins over one held for the whole process: two sessions may place different Tools of
 *    one name in Environments of one name.
 * 2. What is held for the whole process under one pair of names never changes.
 */
export class ServedTools {
  readonly #forProcess = new Map<string, DeclaredTool>();
  readonly #forSessions = new Map<string, Map<string, DeclaredTool>>();
  readonly #listed = new Map<string, ServedTool>();
  #isShared: boolean;
  #version = 0;

  /** `isShared`: other processes may attach as the same host. */
  constructor(isShared: boolean) {
    this.#isShared = isShared;
  }

  /** Grows whenever `list` would answer something else. */
  get version(): number {
    return this.#version;
  }

  /** From now on other processes may attach as this host, so that it matters which Tools this one holds. */
  share(): void {
    if (this.#isShared) return;
    this.#isShared = true;
    this.#version++;
  }

  /**
   * What an attach says this process serves. The only instance of a host says nothing, which means everything: it then
   * never has to attach again, and break commands that are on their way, because of one more Tool.
   */
  list(): ServedTool[] {
    return this.#isShared ? [...this.#listed.values()] : [];
  }

  /** Refuses another function under names that are taken. */
  holdForProcess(environment: string, tool: DeclaredTool): void {
    const { name } = tool.definition;
    const key = placementKey(environment, name);
    const held = this.#forProcess.get(key);
    if (held !== undefined && held !== tool) {
      throw new BrainError(
        "definition_conflict",
        `Tool "${name}" is served in Environment "${environment}" by another function already; serve each pair once`,
        { tool: name, environment },
      );
    }
    this.#forProcess.set(key, tool);
    this.#list(environment, tool);
  }

  /** Holds for one session, and for the whole process where nothing is held under these names yet. */
  holdForSession(sessionId: string, environment: string, tool: DeclaredTool): void {
    const key = placementKey(environment, tool.definition.name);
    const held = this.#forProcess.get(key);
    if (held === undefined) this.#forProcess.set(key, tool);
    else if (held !== tool) {
      const own = this.#forSessions.get(sessionId) ?? new Map<string, DeclaredTool>();
      this.#forSessions.set(sessionId, own.set(key, tool));
    }
    this.#list(environment, tool);
  }

  /** The session calls nothing any more. */
  forgetSession(sessionId: string): void {
    this.#forSessions.delete(sessionId);
  }

  find(sessionId: string, environment: string, name: string): DeclaredTool | undefined {
    const key = placementKey(environment, name);
    return this.#forSessions.get(sessionId)?.get(key) ?? this.#forProcess.get(key);
  }

  #list(environment: string, { definition: { name, sha256 } }: DeclaredTool): void {
    const key = `${placementKey(environment, name)} ${sha256}`;
    if (this.#listed.has(key)) return;
    this.#listed.set(key, create(ServedToolSchema, { environment, name, definitionSha256: sha256 }));
    if (this.#isShared) this.#version++;
  }
}

function placementKey(environment: string, name: string): string {
  return `${environment} ${name}`;
}
