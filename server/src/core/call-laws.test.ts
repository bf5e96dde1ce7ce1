/**
 * The laws of the call machine over many events: every order of up to five after a start, and long random lives of
 * several calls in one session. What each event does by itself is in `call.test.ts`, the laws in `call-witness.ts`.
 */
import { Disposition } from "@aexhq/brain-proto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { event, fold, OUTCOME_A, OUTCOME_B, someFailure, throughJournal } from "../../../tests/support/call-fixture.js";
import { canCome, step, UNSEEN, type Witness } from "../../../tests/support/call-witness.js";
import { type CallEvent, decide } from "./call.js";
import { failed } from "./outcome.js";

/** One event that can come, made for what the call has been through: a known emit_id comes with its sequence. */
type Letter = (seen: Witness) => CallEvent;

const emit =
  (emitId: string): Letter =>
  ({ emits }) =>
    event.emitted(emitId, emits[emitId]);
const always =
  (one: CallEvent): Letter =>
  () =>
    one;

const ALPHABET: Readonly<Record<string, Letter>> = {
  "requested, same content": always(event.requested()),
  "requested, other content": always(event.requested({ inputJson: "{}" })),
  emitted: emit("e1"),
  "returned A": always(event.returned(OUTCOME_A)),
  "returned B": always(event.returned(OUTCOME_B)),
  undeliverable: always(event.undeliverable()),
  deadline_passed: always(event.deadlinePassed()),
  cancel_requested: always(event.cancelRequested()),
  session_ended: always(event.sessionEnded()),
  lost: always(event.lost()),
  "reopened, holder can return": always(event.reopened({ holderCanReturn: true })),
  "reopened, deadline passed": always(event.reopened({ deadlinePassed: true, holderCanReturn: true })),
  "reopened, holder gone": always(event.reopened()),
};
const LETTERS = Object.values(ALPHABET);

/** All of the above, what can begin a call beside it, and what differs from it only in the beginning or in its key. */
const BEGINNINGS: readonly Letter[] = [
  ...LETTERS,
  emit("e2"),
  ({ emits }) => event.emitted(`another ${Object.keys(emits).length}`),
  always(event.refused()),
  always(event.requestedWithoutReceiver()),
  always(event.refused({}, "placement_not_found")),
  always(event.givenUp()),
  always(event.givenUp(failed("timeout", someFailure("deadline_passed")))),
  always(event.givenUp(failed("cancelled", someFailure("cancel_requested")))),
];

function next(seen: Witness): number {
  return seen.entries.length + 1;
}

/** Takes every order of up to `depth` events that can come, sharing prefixes; `visit` sees each of them. */
function everyOrder(from: Witness, depth: number, letters: readonly Letter[], visit: (seen: Witness) => void): void {
  if (depth === 0) return;
  for (const letter of letters) {
    const one = letter(from);
    if (!canCome(from.call.phase, one.type)) continue;
    const seen = step(from, one, next(from));
    visit(seen);
    everyOrder(seen, depth - 1, letters, visit);
  }
}

function orders(letters: number, depth: number): number {
  return depth === 0 ? 0 : letters * (1 + orders(letters, depth - 1));
}

describe("every order of events", () => {
  it("keeps the laws for up to five after a start", { timeout: 60_000 }, () => {
    const started = step(UNSEEN, event.requested(), 1);
    const reached = new Set<string>();
    let visited = 0;
    everyOrder(started, 5, LETTERS, ({ call, entries, sends, events }) => {
      visited++;
      if (sends !== 1) throw new Error("the call was sent when it started, and never again");
      if (call.phase === "running") reached.add(events.length === 6 ? "running after five" : "running");
      if (call.phase !== "ended") return;
      reached.add(call.outcome.status.case ?? "no outcome");
      if (call.late !== undefined) reached.add(`late ${entries.length > 4 ? "after events" : ""}`.trim());
    });
    expect(visited).toBe(orders(LETTERS.length, 5));
    // The search went where it was meant to go.
    expect([...reached].sort()).toEqual([
      "cancelled",
      "error",
      "late",
      "late after events",
      "ok",
      "running",
      "running after five",
      "timeout",
      "unknown",
    ]);
  });

  it("keeps the laws for up to four from the very beginning, whatever begins", { timeout: 60_000 }, () => {
    const beginnings = new Set<string>();
    everyOrder(UNSEEN, 4, BEGINNINGS, ({ call, sends, events }) => {
      if (call.phase === "absent") beginnings.add("absent");
      else
        beginnings.add(
          `${call.phase} ${sends === 0 ? "unsent" : "sent"} ${call.started.receiver === undefined ? "without" : "with"} receiver`,
        );
      if (call.phase === "absent" && events.some(({ type }) => type !== "cancel_requested" && type !== "session_ended")) {
        throw new Error("a call stays absent only while nobody asks for it");
      }
    });
    expect([...beginnings].sort()).toEqual([
      "absent",
      "ended sent with receiver",
      "ended sent without receiver",
      "ended unsent without receiver",
      "running sent with receiver",
      "running sent without receiver",
    ]);
  });
});

describe("long lives", () => {
  const CALLS = 3;
  const move = fc.record({
    call: fc.nat(CALLS - 1),
    letter: fc.nat(BEGINNINGS.length - 1),
    /** The append fails: the decision is dropped, and the call is what it was. */
    lost: fc.boolean(),
  });
  const ending = /returned|undeliverable|deadline|cancel|session|lost|gone/;
  const gentleLetters = Object.keys(ALPHABET).flatMap((name, index) => (ending.test(name) ? [] : [index]));
  gentleLetters.push(LETTERS.length, LETTERS.length + 1);
  /** Mostly what leaves a call running, so that lives are long. */
  const gentle = fc.record({ call: fc.nat(CALLS - 1), letter: fc.constantFrom(...gentleLetters), lost: fc.constant(false) });

  it("keep the laws with several calls in one session, and read back from the journal as they are", () => {
    let longest = 0;
    fc.assert(
      fc.property(
        fc.array(fc.oneof({ weight: 1, arbitrary: move }, { weight: 10, arbitrary: gentle }), { maxLength: 120, size: "max" }),
        (moves) => {
          const seen: Witness[] = Array.from({ length: CALLS }, () => UNSEEN);
          // The first record of a session is its creation.
          let sequence = 2;
          for (const { call: index, letter, lost } of moves) {
            const before = seen[index];
            const one = before === undefined ? undefined : BEGINNINGS[letter]?.(before);
            if (before === undefined || one === undefined || !canCome(before.call.phase, one.type)) continue;
            if (lost) {
              decide(before.call, { ...one, next: sequence });
              continue;
            }
            const after = step(before, one, sequence);
            sequence += after.entries.length - before.entries.length;
            seen[index] = after;
          }
          const sequences = seen.flatMap(({ entries }) => entries.map((entry) => entry.sequence)).sort((a, b) => a - b);
          expect(sequences, "L7: no gap and no place twice").toEqual(Array.from({ length: sequences.length }, (_, index) => index + 2));
          longest = Math.max(longest, ...seen.map(({ entries }) => entries.length));
          for (const { call, entries } of seen) expect(fold(throughJournal(entries)), "L5").toEqual(call);
        },
      ),
      { numRuns: 300 },
    );
    expect(longest, "some lives are long").toBeGreaterThan(12);
  });

  it("end with the first cause among any that come, and answer every later report by how it stands to it", () => {
    const causes = Object.entries(ALPHABET).filter(([name]) => !/^(requested|emitted|reopened, holder can)/.test(name));
    fc.assert(
      fc.property(fc.shuffledSubarray(causes, { minLength: 1 }), ([first, ...rest]) => {
        const begun = step(UNSEEN, event.requested(), 1);
        const ended = step(begun, first?.[1](begun) ?? event.lost(), 2);
        const last = rest.reduce((seen, [, letter]) => step(seen, letter(seen), next(seen)), ended);
        if (ended.call.phase !== "ended" || last.call.phase !== "ended") throw new Error("a cause ends the call");
        expect(last.call.outcome).toBe(ended.call.outcome);
        const again = decide(last.call, { ...event.returned(ended.call.outcome), next: next(last) });
        expect(again.append).toEqual([]);
        expect(again.effects).toMatchObject([{ answer: { disposition: Disposition.DUPLICATE } }]);
      }),
    );
  });
});
