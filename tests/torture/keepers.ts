/** Those who keep a server or a host running: whoever is killed has a successor soon. */
import { setTimeout as after } from "node:timers/promises";
import type { ProcessLife } from "./evidence.js";
import type { HostOrder } from "./host-program.js";
import type { Kill, ServerPoint } from "./kill-points.js";
import type { PlaceOfHost } from "./plan.js";
import type { Program, ProgramKind, SparePrograms } from "./program.js";
import type { Relay } from "./relay.js";
import type { ServeOrder } from "./server-program.js";

export interface Keeping {
  readonly spares: SparePrograms;
  readonly witnessFile: string;
  readonly apiToken: string;
  readonly restartAfterMs: readonly number[];
  readonly lives: ProcessLife[];
  log(what: string): void;
  complain(what: string): void;
}

abstract class Keeper {
  protected readonly keeping: Keeping;
  readonly #kind: ProgramKind;
  readonly #label: string;
  #program: Program | undefined;
  #life: ProcessLife | undefined;
  /** The end of the present process, and the start of the one after it. */
  #succession: Promise<void> = Promise.resolve();
  #started = 0;
  #isLeaving = false;
  #isDisposed = false;

  constructor(keeping: Keeping, kind: ProgramKind, label: string) {
    this.keeping = keeping;
    this.#kind = kind;
    this.#label = label;
  }

  /** Resolves once the first process is at work, or dead. */
  async start(): Promise<void> {
    const program = await this.keeping.spares.take(this.#kind);
    if (this.#isDisposed) return await program[Symbol.asyncDispose]();
    const nth = this.#started++;
    const name = `${this.#label}.${nth}`;
    this.#program = program;
    const life: ProcessLife = { name, kind: this.#kind, ...this.traits, startedAt: Date.now() };
    this.#life = life;
    this.keeping.lives.push(life);
    this.keeping.log(`${name} starts`);
    this.#succession = program.ended().then(() => this.#ended(program, life));
    await this.commission(program, name, nth);
  }

  kill(why: string): void {
    if (this.#life === undefined || this.#program?.alive !== true || this.#isLeaving) return;
    this.#life.killedAt ??= Date.now();
    this.#life.killedBy ??= why;
    this.keeping.log(`${this.#life.name} is killed ${why}`);
    this.#program.kill();
  }

  /** Has it stop in order; it has a successor all the same. */
  restart(): void {
    if (this.#program?.alive !== true || this.#isLeaving) return;
    this.keeping.log(`${this.#life?.name} is asked to stop, and to be followed`);
    this.#program.order({ order: "stop" });
  }

  /** Asks the process to leave in order, and waits until it has. One that is killed at its last step leaves a successor that leaves. */
  async leave(withinMs: number): Promise<void> {
    this.#isLeaving = true;
    const timeout = new AbortController();
    const late = after(withinMs, "late" as const, { signal: timeout.signal });
    late.catch(() => undefined);
    for (;;) {
      const program = this.#program;
      if (program === undefined) break;
      program.order({ order: "stop" });
      const left = this.#succession.then(() => "left" as const);
      if ((await Promise.race([left, late])) === "late") {
        this.keeping.complain(`${this.#life?.name} did not leave within ${withinMs} ms:\n${program.stderr.join("\n")}`);
        break;
      }
      if (!program.killed) break;
    }
    timeout.abort();
  }

  protected abstract readonly traits: Pick<ProcessLife, "place" | "outbox">;
  protected abstract commission(program: Program, name: string, nth: number): Promise<void>;

  async #ended(program: Program, life: ProcessLife): Promise<void> {
    this.keeping.log(`${life.name} is gone`);
    if (program.stderr.length > 0) this.keeping.log(`${life.name} said: ${program.stderr.join(" | ")}`);
    for (const line of program.stderr) if (line.includes('"level":"error"')) this.keeping.complain(`${life.name} met a bug: ${line}`);
    if (!program.killed) {
      if (program.exitCode !== 0) this.keeping.complain(`${life.name} ended with ${program.exitCode}:\n${program.stderr.join("\n")}`);
      if (this.#isLeaving) return;
    }
    await after(this.keeping.restartAfterMs[this.#started % this.keeping.restartAfterMs.length]);
    if (!this.#isDisposed) await this.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isDisposed = true;
    await this.#program?.[Symbol.asyncDispose]();
  }
}

export class ServerKeeper extends Keeper {
  readonly #options: { readonly flags: Readonly<Record<string, string>>; readonly kills: readonly Kill<ServerPoint>[] };
  readonly #relays: readonly Relay[];
  protected readonly traits = { outbox: false };

  constructor(
    keeping: Keeping,
    options: { readonly flags: Readonly<Record<string, string>>; readonly kills: readonly Kill<ServerPoint>[] },
    relays: readonly Relay[],
  ) {
    super(keeping, "server", "server");
    this.#options = options;
    this.#relays = relays;
  }

  protected async commission(program: Program, name: string, nth: number): Promise<void> {
    const { witnessFile, apiToken } = this.keeping;
    const kill = this.#options.kills[nth];
    const order: ServeOrder = {
      order: "serve",
      name,
      witnessFile,
      apiToken,
      flags: this.#options.flags,
      ...(kill === undefined ? {} : { kill }),
    };
    program.order(order);
    const listening = await program.word("listening");
    if (listening === undefined) return;
    for (const relay of this.#relays) relay.forwardTo(String(listening["url"]));
    this.keeping.log(`${name} listens`);
  }
}

export type HostSeat = Omit<PlaceOfHost, "outbox"> & Pick<HostOrder, "baseUrl" | "hostId" | "hostToken" | "outbox">;

export class HostKeeper extends Keeper {
  readonly #seat: HostSeat;
  protected readonly traits: { place: number; outbox: boolean };

  constructor(keeping: Keeping, place: number, seat: HostSeat) {
    super(keeping, "host", `host${place}`);
    this.#seat = seat;
    this.traits = { place, outbox: seat.outbox !== undefined };
  }

  protected async commission(program: Program, name: string, nth: number): Promise<void> {
    const { witnessFile } = this.keeping;
    const { kills, route, ...seat } = this.#seat;
    const kill = kills[nth];
    const order: HostOrder = { order: "serve", name, witnessFile, ...seat, hostRoute: route, ...(kill === undefined ? {} : { kill }) };
    program.order(order);
    if ((await program.word("serving")) !== undefined) this.keeping.log(`${name} serves`);
  }
}
