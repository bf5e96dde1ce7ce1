/**
 * One live process per outbox, by a lock that dies with its process.
 *
 * Whoever wants the file listens on a socket of its own beside it, under a random name that is never used again. A
 * socket that refuses connections is a dead process's, so nothing is ever stale, and nobody's clock or pid is trusted.
 *
 * 1. A contender listens before it looks for others, and takes the file only when every other it saw is dead or has
 *    withdrawn. Of two, the later to listen sees the earlier one: both can never take it.
 * 2. Only sockets that refuse are removed, and names are not reused: nobody removes a living one by mistake, except in
 *    the instant between binding and listening. So a contender looks, last of all, whether its own is still there. By
 *    then whoever could have removed it was seen, and is dead or has withdrawn.
 * 3. Of contenders that see each other, the one with the greater name withdraws and waits for the other's decision;
 *    the lesser waits without withdrawing. Nobody waits in a circle.
 */
import { randomBytes } from "node:crypto";
import { lstat, mkdtemp, readdir, rm, symlink } from "node:fs/promises";
import * as net from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { BrainError } from "./errors.js";

/** For a contender to decide; one that says nothing for so long is a stopped process, which may wake up. */
const DECISION_MS = 2_000;
/** Systems cut or refuse longer names of sockets; the shortest limit is 103. */
const SOCKET_NAME_MAX_BYTES = 100;
const HELD = "held\n";

export interface OutboxLock {
  release(): Promise<void>;
}

/** `path` is absolute and without symbolic links, so that it is the same for everybody. Rejects with `outbox_in_use`. */
export async function lockOutbox(path: string): Promise<OutboxLock> {
  for (;;) {
    const me = await Contender.enter(path);
    try {
      const decision = await contend(path, me);
      if (decision === "taken") {
        me.hold();
        return { release: () => me.leave() };
      }
      await me.leave();
      if (decision === "refused") throw inUse(path);
    } catch (error) {
      await me.leave();
      throw error;
    }
  }
}

async function contend(path: string, me: Contender): Promise<"taken" | "refused" | "again"> {
  const prefix = `${basename(path)}.live-`;
  for (const name of await readdir(dirname(path))) {
    if (!name.startsWith(prefix) || name === me.name) continue;
    const other = await reach(join(dirname(path), name));
    if (other === undefined) continue;
    const mustWithdraw = name < me.name;
    if (mustWithdraw) await me.leave();
    if ((await other.decision) === "held") return "refused";
    if (mustWithdraw) return "again";
  }
  return (await me.isThere()) ? "taken" : "again";
}

function inUse(path: string): BrainError {
  const message = `The outbox ${path} is in use by another process, or by another Brain object of this one; give each process a file of its own`;
  return new BrainError("outbox_in_use", message, { path });
}

class Contender {
  readonly name: string;
  readonly #file: string;
  readonly #server: net.Server;
  readonly #waiting = new Set<net.Socket>();
  #inode = 0n;
  #holds = false;

  private constructor(path: string) {
    this.#file = `${path}.live-${randomBytes(4).toString("hex")}`;
    this.name = basename(this.#file);
    this.#server = net.createServer((socket) => this.#answer(socket));
    this.#server.unref();
  }

  static async enter(path: string): Promise<Contender> {
    const me = new Contender(path);
    await withShortName(me.#file, (file) => listen(me.#server, file));
    me.#inode = (await inodeOf(me.#file)) ?? 0n;
    return me;
  }

  hold(): void {
    this.#holds = true;
    for (const socket of this.#waiting) socket.end(HELD);
  }

  async isThere(): Promise<boolean> {
    return (await inodeOf(this.#file)) === this.#inode;
  }

  /** Withdraws, or lets the file go. Harmless when repeated. */
  async leave(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#waiting) socket.destroy();
    await closed;
    await rm(this.#file, { force: true });
  }

  #answer(socket: net.Socket): void {
    socket.on("error", () => undefined);
    socket.on("close", () => this.#waiting.delete(socket));
    socket.unref();
    socket.resume();
    this.#waiting.add(socket);
    if (this.#holds) socket.end(HELD);
  }
}

/** Undefined for a dead one, whose socket is then removed. */
async function reach(file: string): Promise<{ decision: Promise<"held" | "left"> } | undefined> {
  const inode = await inodeOf(file);
  if (inode === undefined) return undefined;
  return await withShortName(file, async (short) => {
    const socket = net.connect({ path: short });
    const decision = new Promise<"held" | "left">((resolve) => {
      const silent = setTimeout(() => resolve("held"), DECISION_MS);
      socket.on("data", () => resolve("held"));
      socket.on("close", () => {
        clearTimeout(silent);
        resolve("left");
      });
    });
    void decision.then(() => socket.destroy());
    const refusal = await new Promise<string | undefined>((resolve) => {
      socket.once("connect", () => resolve(undefined));
      socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? ""));
    });
    if (refusal === undefined) return { decision };
    if (refusal === "ENOENT") return undefined;
    if (refusal === "ECONNREFUSED") {
      await rm(file, { force: true });
      return undefined;
    }
    // One that cannot be asked, for want of a right for instance, is not known to be dead.
    return { decision: Promise.resolve("held" as const) };
  });
}

/** Of a socket; undefined where there is none. */
async function inodeOf(file: string): Promise<bigint | undefined> {
  try {
    const found = await lstat(file, { bigint: true });
    return found.isSocket() ? found.ino : undefined;
  } catch {
    return undefined;
  }
}

function listen(server: net.Server, file: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    // Exclusive: in a cluster it would be the primary process that listens.
    server.listen({ path: file, exclusive: true }, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

/** The same file by a name that is short enough for a socket. */
async function withShortName<T>(file: string, use: (file: string) => Promise<T>): Promise<T> {
  if (Buffer.byteLength(file) <= SOCKET_NAME_MAX_BYTES) return await use(file);
  const folder = await mkdtemp(join(tmpdir(), "brain-"));
  try {
    const link = join(folder, "at");
    await symlink(dirname(file), link);
    return await use(join(link, basename(file)));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
