import { describe, expect, it } from "vitest";
import { entry } from "../../../tests/support/journal-fixture.js";
import type { Entry } from "../core/entry.js";
import { type Journal, JournalError } from "../journal/port.js";
import { type Step, Steps } from "./steps.js";

interface Asked {
  readonly at: number;
  readonly entries: number;
  resolve(): void;
  reject(error: unknown): void;
}

/** A journal whose appends are settled by the test, one by one. */
class Scripted {
  readonly asked: Asked[] = [];
  readonly log: string[] = [];
  readonly bugs: unknown[] = [];
  readonly steps: Steps;

  constructor(next = 2) {
    const append = (_session: string, at: number, entries: readonly Entry[]): Promise<void> =>
      new Promise((resolve, reject) => this.asked.push({ at, entries: entries.length, resolve, reject }));
    this.steps = new Steps({ sessionId: "s", next }, { append } as Pick<Journal, "append"> as Journal, (error) => this.bugs.push(error));
  }

  step(name: string, entries: number, perform: () => void = () => undefined): Step {
    return {
      entries: Array.from({ length: entries }, (_, index) => entry.started(`${name}-${index}`)),
      perform: () => {
        this.log.push(`perform ${name}`);
        perform();
      },
      undo: () => void this.log.push(`undo ${name} at ${this.steps.next}`),
      refuse: ({ reason }) => void this.log.push(`refuse ${name} ${reason}`),
    };
  }

  take(name: string, entries: number, perform?: () => void): void {
    this.steps.take(this.step(name, entries, perform));
  }

  /** The append that was asked for at that place, now durable. */
  async durable(index: number): Promise<void> {
    this.asked[index]?.resolve();
    await turn();
  }

  async fails(index: number, error: unknown = new JournalError("journal_full", "the disk is full")): Promise<void> {
    this.asked[index]?.reject(error);
    await turn();
  }
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

describe("steps of a session", () => {
  it("take the sequences that follow those of the step before, durable or not", async () => {
    const journal = new Scripted();
    journal.take("a", 1);
    journal.take("b", 2);
    journal.take("c", 0);
    journal.take("d", 1);
    expect(journal.asked.map(({ at, entries }) => [at, entries])).toEqual([
      [2, 1],
      [3, 2],
      [5, 1],
    ]);
    expect(journal.steps.next).toBe(6);
    expect(journal.log).toEqual([]);
  });

  it("are performed in their order, each after its append and all before it are durable", async () => {
    const journal = new Scripted();
    journal.take("a", 1);
    journal.take("b", 1);
    journal.take("c", 1);
    await journal.durable(1);
    await journal.durable(2);
    expect(journal.log).toEqual([]);
    await journal.durable(0);
    expect(journal.log).toEqual(["perform a", "perform b", "perform c"]);
    expect([journal.steps.idle, journal.steps.released]).toEqual([true, 3]);
  });

  it("without entries are performed at once when nothing is underway, and else after the steps before them", async () => {
    const journal = new Scripted();
    journal.take("a", 0);
    expect(journal.log).toEqual(["perform a"]);
    journal.take("b", 1);
    journal.take("c", 0);
    journal.take("d", 1);
    journal.take("e", 0);
    expect(journal.log).toEqual(["perform a"]);
    await journal.durable(0);
    expect(journal.log).toEqual(["perform a", "perform b", "perform c"]);
    await journal.durable(1);
    expect(journal.log.slice(3)).toEqual(["perform d", "perform e"]);
    expect(journal.asked).toHaveLength(2);
  });

  it("that fail are undone with all later ones, latest first, and refused afterwards, earliest first", async () => {
    const journal = new Scripted();
    journal.take("a", 1);
    journal.take("b", 1);
    journal.take("c", 0);
    journal.take("d", 2);
    await journal.durable(0);
    await journal.fails(1);
    expect(journal.log).toEqual([
      "perform a",
      "undo d at 3",
      "undo c at 3",
      "undo b at 3",
      "refuse b journal_full",
      "refuse c journal_full",
      "refuse d journal_full",
    ]);
    expect([journal.steps.next, journal.steps.idle]).toEqual([3, true]);
    expect(journal.bugs).toEqual([]);
  });

  it("that fell with an earlier one are not undone again when their own append fails", async () => {
    const journal = new Scripted();
    journal.take("a", 1);
    journal.take("b", 1);
    await journal.fails(0);
    const { log } = journal;
    const before = [...log];
    await journal.fails(1, new JournalError("sequence_conflict", "an earlier append failed"));
    expect(log).toEqual(before);
    expect(journal.bugs).toEqual([]);
  });

  it("are held up and not harmed by a failure of a later one", async () => {
    const journal = new Scripted();
    journal.take("a", 1);
    journal.take("b", 1);
    await journal.fails(1);
    expect(journal.log).toEqual(["undo b at 3", "refuse b journal_full"]);
    expect(journal.steps.next).toBe(3);
    await journal.durable(0);
    expect(journal.log.at(-1)).toBe("perform a");
  });

  it("go on after a failure with the sequences that were given back", async () => {
    const journal = new Scripted();
    journal.take("a", 2);
    await journal.fails(0);
    journal.take("b", 1);
    expect(journal.asked[1]?.at).toBe(2);
    await journal.durable(1);
    expect(journal.log.at(-1)).toBe("perform b");
  });

  it("that are taken by a refused asker at once come after everything was refused", async () => {
    const journal = new Scripted();
    const refused = journal.step("a", 1);
    journal.steps.take({
      ...refused,
      refuse: (refusal) => {
        refused.refuse(refusal);
        journal.take("again", 1);
      },
    });
    journal.take("b", 1);
    await journal.fails(0);
    expect(journal.log).toEqual(["undo b at 2", "undo a at 2", "refuse a journal_full", "refuse b journal_full"]);
    expect(journal.asked.map(({ at }) => at)).toEqual([2, 3, 2]);
    await journal.durable(2);
    expect(journal.log.at(-1)).toBe("perform again");
  });

  it("that are taken while another is performed come after it", async () => {
    const journal = new Scripted();
    journal.take("a", 1, () => journal.take("of a", 1));
    journal.take("b", 1);
    await journal.durable(0);
    expect(journal.asked.map(({ at }) => at)).toEqual([2, 3, 4]);
    await journal.durable(1);
    await journal.durable(2);
    expect(journal.log).toEqual(["perform a", "perform b", "perform of a"]);
  });

  it("whose effects throw are reported as a bug, and hold up nobody", async () => {
    const journal = new Scripted();
    const bug = new Error("broken");
    journal.take("a", 1, () => {
      throw bug;
    });
    journal.take("b", 1);
    await journal.durable(0);
    await journal.durable(1);
    expect(journal.bugs).toEqual([bug]);
    expect(journal.log).toEqual(["perform a", "perform b"]);
    expect(journal.steps.idle).toBe(true);
  });

  it("that fail for no reason of the journal's are undone, refused as internal and reported as a bug", async () => {
    const journal = new Scripted();
    const bug = new Error("an assertion failed");
    journal.take("a", 1);
    await journal.fails(0, bug);
    expect(journal.log).toEqual(["undo a at 2", "refuse a internal"]);
    expect(journal.bugs).toEqual([bug]);
  });

  it("settle when everything decided so far is durable, and are refused when it was taken back", async () => {
    const journal = new Scripted();
    await journal.steps.settled();
    journal.take("a", 1);
    let settled = false;
    const settling = journal.steps.settled().then(() => {
      settled = true;
    });
    await turn();
    expect(settled).toBe(false);
    await journal.durable(0);
    await settling;
    journal.take("b", 1);
    const refused = journal.steps.settled();
    refused.catch(() => undefined);
    await journal.fails(1);
    await expect(refused).rejects.toMatchObject({ reason: "journal_full" });
  });
});
