import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { type FileHandle, open as openFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Outbox } from "./outbox.js";
import { entryLine, FIRST_LINE, type OutboxEntry, readOutbox } from "./outbox-lines.js";
import { wireOk } from "./outcome.js";

let folder: string;
let path: string;
let lines: string[];
const opened: Outbox[] = [];
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "brain-outbox-")));
  path = join(folder, "outbox");
  lines = [];
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((outbox) => outbox.close()));
  rmSync(folder, { recursive: true, force: true });
});

async function open(options: { path?: string; hostId?: string } = {}): Promise<Outbox> {
  const outbox = await Outbox.open({ path, hostId: "a-host", log: (line) => lines.push(line), ...options });
  opened.push(outbox);
  return outbox;
}

const entry = (callSequence: number, value: unknown = callSequence): OutboxEntry => ({
  hostId: "a-host",
  sessionId: "a-session",
  callSequence,
  tool: "lookup",
  outcome: wireOk(JSON.stringify(value)),
});
/** What the file says at this moment, to whoever would read it after a crash. */
const onDisk = (file = path): number[] => readOutbox(readFileSync(file)).entries.map(({ callSequence }) => callSequence);
const found = (outbox: Outbox): number[] => outbox.found.map(({ callSequence }) => callSequence);

describe("an outcome", () => {
  test("is in the file when it is saved, stays there over processes, and goes when it is answered", async () => {
    const first = await open();
    await Promise.all([2, 4, 6].map((sequence) => first.save(entry(sequence))));
    expect(onDisk()).toEqual([2, 4, 6]);
    first.answered(entry(4));
    await first.close();
    const second = await open();
    expect(second.found).toEqual([entry(2), entry(6)]);
    expect(lines).toEqual([expect.stringContaining("2 outcomes that an earlier process had no answer to")]);
    for (const one of second.found) second.answered(one);
    expect(second.savedCount).toBe(0);
    await second.close();
    expect(found(await open())).toEqual([]);
    expect(readFileSync(path, "utf8")).toBe(FIRST_LINE);
  });

  test("is the last one saved of its call, and is answered once", async () => {
    const outbox = await open();
    await outbox.save(entry(2, "one"));
    outbox.answered(entry(2));
    outbox.answered(entry(2));
    outbox.answered(entry(99));
    await outbox.save(entry(4));
    expect(onDisk()).toEqual([4]);
  });

  test("that cannot be written down is said and let go", async () => {
    const outbox = await open();
    await outbox.save({ ...entry(2), outcome: { ...entry(2).outcome, status: { case: "ok", value: 7 } } as never });
    expect(lines).toEqual([expect.stringContaining('an outcome of Tool "lookup" cannot be kept in the outbox')]);
    await outbox.save(entry(4));
    expect(onDisk()).toEqual([4]);
  });

  test("of another host is not this one's to report, and the file is left as it is", async () => {
    await (await open()).save(entry(2));
    await opened[0]?.close();
    const before = readFileSync(path);
    await expect(open({ hostId: "another" })).rejects.toMatchObject({
      reason: "outbox_unusable",
      message: expect.stringContaining("outcomes of host a-host, which host another cannot report"),
    });
    expect(readFileSync(path)).toEqual(before);
    expect(found(await open())).toEqual([2]);
  });
});

describe("a flush", () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  test("comes before save resolves, and one serves all that have come together", async () => {
    const outbox = await open();
    const probe = await openFile(path, "r");
    await probe.close();
    const waiting: (() => void)[] = [];
    const flush = vi.spyOn(Object.getPrototypeOf(probe) as FileHandle, "datasync");
    flush.mockImplementation(() => new Promise((resolve) => waiting.push(resolve)));
    let savedCount = 0;
    const saving = [2, 4, 6].map(async (sequence) => {
      await outbox.save(entry(sequence));
      savedCount++;
    });
    await vi.waitFor(() => expect(waiting).toHaveLength(1));
    // It is written, and has not survived a power failure yet.
    expect(onDisk()).toEqual([2, 4, 6]);
    await new Promise((resolve) => setImmediate(resolve));
    expect([savedCount, outbox.savedCount]).toEqual([0, 0]);
    waiting[0]?.();
    await Promise.all(saving);
    expect([savedCount, outbox.savedCount, flush.mock.calls.length]).toEqual([3, 3, 1]);
  });

  test("that fails is not trusted: the whole file is written again and flushed", async () => {
    const outbox = await open();
    await outbox.save(entry(2));
    const probe = await openFile(path, "r");
    await probe.close();
    const prototype = Object.getPrototypeOf(probe) as FileHandle;
    vi.spyOn(prototype, "datasync").mockRejectedValueOnce(Object.assign(new Error("EIO: i/o error"), { code: "EIO" }));
    const { ino } = statSync(path);
    await outbox.save(entry(4));
    expect(lines).toEqual([expect.stringContaining("cannot be written (EIO")]);
    const flush = vi.spyOn(prototype, "sync");
    await outbox.save(entry(6));
    expect(statSync(path).ino).not.toBe(ino);
    // The file and its folder.
    expect(flush).toHaveBeenCalledTimes(2);
    expect(onDisk()).toEqual([2, 4, 6]);
  });
});

describe("the file", () => {
  test("and the folders made for it are nobody else's to read", async () => {
    const deep = join(folder, "some", "where", "outbox");
    await open({ path: deep });
    const mode = (file: string): number => statSync(file).mode & 0o777;
    expect([mode(join(folder, "some")), mode(join(folder, "some", "where")), mode(deep)]).toEqual([0o700, 0o700, 0o600]);
    writeFileSync(path, "");
    chmodSync(path, 0o644);
    await open();
    expect(mode(path)).toBe(0o600);
  });

  test("is one, by whatever path it is named", async () => {
    await open();
    symlinkSync(folder, join(folder, "also"));
    symlinkSync(path, join(folder, "link"));
    for (const name of [path, join(folder, "also", "outbox"), join(folder, "link"), join(folder, ".", "outbox")]) {
      await expect(open({ path: name })).rejects.toMatchObject({ reason: "outbox_in_use", message: expect.stringContaining(path) });
    }
  });

  test("that ends in an unfinished line loses that line alone, and says so", async () => {
    writeFileSync(path, Buffer.concat([Buffer.from(FIRST_LINE), entryLine(entry(2)), entryLine(entry(4)).subarray(0, -9)]));
    const outbox = await open();
    expect(found(outbox)).toEqual([2]);
    expect(lines[0]).toContain("they are dropped");
    await outbox.save(entry(6));
    expect(onDisk()).toEqual([2, 6]);
    expect(readdirSync(folder).filter((name) => name.includes("corrupt"))).toEqual([]);
  });

  test("that is damaged is kept under another name as it was, and every whole outcome is reported", async () => {
    const damaged = Buffer.concat([Buffer.from(FIRST_LINE), ...[2, 4, 6].map((sequence) => entryLine(entry(sequence)))]);
    const second = FIRST_LINE.length + entryLine(entry(2)).length;
    damaged.fill(0, second + 20, second + 40);
    writeFileSync(path, damaged);
    const outbox = await open();
    const [aside] = readdirSync(folder).filter((name) => name.startsWith("outbox.corrupt-"));
    expect(lines[0]).toContain(`is damaged in 1 lines: it is kept as ${join(folder, String(aside))}, and 2 outcomes in it are whole`);
    expect(readFileSync(join(folder, String(aside)))).toEqual(damaged);
    expect(found(outbox)).toHaveLength(2);
    await outbox.save(entry(8));
    expect(readOutbox(readFileSync(path))).toMatchObject({ damagedLines: 0, tornBytes: 0 });
    expect(onDisk()).toHaveLength(3);
  });

  test.each([
    ["a stranger's", () => writeFileSync(path, "#!/bin/sh\n"), "is no outbox"],
    ["a folder", () => mkdirSync(path), "EISDIR"],
    [
      "below a file",
      () => {
        writeFileSync(path, "x");
        path = join(path, "outbox");
      },
      "ENOTDIR|EEXIST",
    ],
  ])("that is %s is refused by name and left alone", async (_, make, why) => {
    make();
    await expect(open()).rejects.toMatchObject({ reason: "outbox_unusable", message: expect.stringMatching(why) });
    await expect(open()).rejects.toMatchObject({ message: expect.stringContaining(path) });
    expect(readdirSync(folder)).toHaveLength(1);
  });

  test("left half-made by a process that was killed is no trouble", async () => {
    await (await open()).save(entry(2));
    await opened[0]?.close();
    writeFileSync(`${path}.new`, "brain out");
    expect(found(await open())).toEqual([2]);
  });

  test("stays short however much goes through it, and keeps what waits all the while", async () => {
    const outbox = await open();
    await outbox.save(entry(2, "waits"));
    const big = "x".repeat(100_000);
    let longest = 0;
    for (let sequence = 4; sequence < 104; sequence += 2) {
      await outbox.save(entry(sequence, big));
      outbox.answered(entry(sequence));
      longest = Math.max(longest, statSync(path).size);
    }
    expect(longest).toBeLessThan(1.3 * 1024 * 1024);
    expect(onDisk()).toContain(2);
    await outbox.close();
    expect(found(await open())).toEqual([2]);
  });

  test("may be longer when what waits in it is", async () => {
    const outbox = await open();
    const sequences = Array.from({ length: 30 }, (_, index) => 2 * index + 2);
    await Promise.all(sequences.map((sequence) => outbox.save(entry(sequence, "x".repeat(100_000)))));
    await outbox.save(entry(100));
    expect(onDisk()).toEqual([...sequences, 100]);
  });
});

describe("a file that cannot be written as it was", () => {
  test("costs no outcome: it is said once, and made good once it can be", async () => {
    const outbox = await open();
    await outbox.save(entry(2));
    const away = `${folder}-away`;
    renameSync(folder, away);
    try {
      await outbox.save(entry(4));
      await outbox.save(entry(6));
      expect(lines).toEqual([expect.stringMatching(/cannot be written \(ENOENT.*reported from memory meanwhile/)]);
      // What was flushed before is as it was.
      expect(onDisk(join(away, "outbox"))).toContain(2);
      outbox.answered(entry(4));
    } finally {
      renameSync(away, folder);
    }
    await outbox.save(entry(8));
    expect(lines.slice(1)).toEqual([expect.stringContaining("can be written again, and has every outcome that waits")]);
    expect(onDisk()).toEqual([2, 6, 8]);
  });

  test("because somebody removed or replaced it is made again, with everything that waits", async () => {
    const outbox = await open();
    await outbox.save(entry(2));
    rmSync(path);
    await outbox.save(entry(4));
    expect(onDisk()).toEqual([2, 4]);
    rmSync(path);
    writeFileSync(path, "something else");
    await outbox.save(entry(6));
    expect(onDisk()).toEqual([2, 4, 6]);
  });

  test("because somebody wrote to it as well is written where the last sound line ended", async () => {
    const outbox = await open();
    await outbox.save(entry(2));
    appendFileSync(path, "scribble\n");
    await outbox.save(entry(4));
    await outbox.close();
    expect(found(await open())).toEqual([2, 4]);
  });
});
