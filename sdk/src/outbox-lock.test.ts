import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, realpathSync, renameSync, rmSync, writeFileSync } from "node:fs";
import * as net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { lockOutbox, type OutboxLock } from "./outbox-lock.js";

const CONTENDER = fileURLToPath(new URL("../../tests/support/outbox-contender.ts", import.meta.url));

let folder: string;
let path: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "brain-lock-")));
  path = join(folder, "outbox");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const sockets = (): string[] => readdirSync(folder).filter((name) => name.includes(".live-"));

async function tried(): Promise<OutboxLock | string> {
  return await lockOutbox(path).catch((error: { reason: string; message: string }) => `${error.reason} ${error.message}`);
}

/** A socket as a process leaves it that was killed: bound, and nobody listens. */
async function deadSocket(name: string): Promise<void> {
  const server = net.createServer().listen(join(folder, "alive"));
  await once(server, "listening");
  renameSync(join(folder, "alive"), join(folder, name));
  server.close();
  await once(server, "close");
}

describe("a lock", () => {
  test("is refused while it is held, naming the file, and free afterwards without a trace", async () => {
    const lock = await lockOutbox(path);
    expect(await tried()).toContain(`outbox_in_use The outbox ${path} is in use`);
    await lock.release();
    await (await lockOutbox(path)).release();
    expect(readdirSync(folder)).toEqual([]);
  });

  test("is of one file: another beside it, and one whose name begins alike, are free", async () => {
    const locks = await Promise.all([path, `${path}2`, join(folder, "out")].map(lockOutbox));
    await Promise.all(locks.map((lock) => lock.release()));
  });

  test("is taken over from dead processes, however many, and leaves what is no socket alone", async () => {
    for (const name of ["outbox.live-00000000", "outbox.live-ffffffff"]) await deadSocket(name);
    writeFileSync(join(folder, "outbox.live-notes"), "mine");
    const lock = await lockOutbox(path);
    expect(sockets().filter((name) => name !== "outbox.live-notes")).toHaveLength(1);
    await lock.release();
    expect(sockets()).toEqual(["outbox.live-notes"]);
  });

  test("has one winner of many that want it at once, with dead ones about, again and again", async () => {
    for (let round = 0; round < 40; round++) {
      await deadSocket(`outbox.live-${String(round).padStart(8, "0")}`);
      const all = await Promise.all(Array.from({ length: 12 }, tried));
      const won = all.filter((one) => typeof one !== "string");
      expect(won.length, `winners of round ${round}`).toBe(1);
      expect(all.filter((one) => String(one).startsWith("outbox_in_use"))).toHaveLength(11);
      await Promise.all(won.map((lock) => lock.release()));
    }
    expect(readdirSync(folder)).toEqual([]);
  });

  test("works for a path that is longer than a socket's name may be", async () => {
    const deep = join(folder, "a".repeat(100), "b".repeat(100));
    mkdirSync(deep, { recursive: true });
    path = join(deep, "outbox");
    const lock = await lockOutbox(path);
    expect(await tried()).toContain("outbox_in_use");
    await lock.release();
    expect(readdirSync(deep)).toEqual([]);
  });
});

describe("processes that want one outbox", () => {
  const processes: ChildProcess[] = [];
  afterEach(() => {
    for (const child of processes.splice(0)) child.kill("SIGKILL");
  });

  async function start(): Promise<ChildProcess> {
    const child = fork(CONTENDER, { execArgv: ["--import", "tsx"], stdio: ["ignore", "inherit", "inherit", "ipc"] });
    processes.push(child);
    expect(await once(child, "message")).toContain("ready");
    return child;
  }

  async function told(child: ChildProcess, order: "open" | "close"): Promise<unknown> {
    const answer = once(child, "message");
    child.send({ order, path });
    return (await answer)[0];
  }

  test("get it one at a time, and a killed one's is free at once", async () => {
    let children: ChildProcess[] = await Promise.all([start(), start(), start()]);
    for (let round = 0; round < 10; round++) {
      const answers = await Promise.all(children.map((child) => told(child, "open")));
      expect([...answers].sort()).toEqual(["opened", "outbox_in_use", "outbox_in_use"]);
      const winner = children[answers.indexOf("opened")];
      if (winner === undefined) throw new Error("nobody won");
      const others = children.filter((child) => child !== winner);
      if (round % 5 !== 4) {
        expect(await told(winner, "close")).toBe("closed");
        continue;
      }
      const exited = once(winner, "exit");
      winner.kill("SIGKILL");
      await exited;
      expect(sockets()).toHaveLength(1);
      const [next] = await Promise.all(others.map((child) => told(child, "open")));
      expect(["opened", "outbox_in_use"]).toContain(next);
      await Promise.all(others.map((child) => told(child, "close")));
      children = [...others, await start()];
    }
  });

  test("take a stopped process for a living one", async () => {
    const [one, two] = await Promise.all([start(), start()]);
    expect(await told(one, "open")).toBe("opened");
    one.kill("SIGSTOP");
    expect(await told(two, "open")).toBe("outbox_in_use");
    one.kill("SIGCONT");
    expect(await told(one, "close")).toBe("closed");
    expect(await told(two, "open")).toBe("opened");
  });
});
