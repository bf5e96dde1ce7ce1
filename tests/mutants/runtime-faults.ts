import type { Edit, Fault } from "./fault.js";

const CALL = "server/src/core/call.ts";
const STEPS = "server/src/runtime/steps.ts";
const SESSION = "server/src/runtime/session.ts";
const WRITER = "server/src/journal/sqlite/writer.ts";

const edit = (file: string, find: string, plant: string): Edit => ({ file, find, plant });

/** What notices a law broken by a decision, before any test does. */
const WITHOUT_L1 = edit(CALL, "sends === 0 || (sends === 1 && starts && !ends && call.phase === ", "sends >= 0 || (call.phase === ");
const WITHOUT_L3 = edit(CALL, '!ends || call.phase === "running" || starts', "true");
const WITHOUT_L3_IN_THE_FOLD = edit(
  CALL,
  'call.phase === "running" && entry.value.outcome !== undefined',
  "entry.value.outcome !== undefined",
);
const WITHOUT_L4 = edit(CALL, 'event.type !== "reopened" || sends === 0', "true");

/** Faults of the machine, the driver and the journal: laws L1 to L8. */
export const RUNTIME_FAULTS: readonly Fault[] = [
  {
    name: "effects-before-append",
    what: "effects are performed when a decision is taken, not when it is durable",
    edits: [
      edit(
        STEPS,
        "this.#next += step.entries.length;",
        "this.#next += step.entries.length;\n    taken.durable = true;\n    this.#release();",
      ),
    ],
    suite: { file: "server/src/runtime/steps.test.ts", test: "are performed in their order, each after its append" },
  },
  {
    name: "send-before-append",
    what: "a command is written before the start of its call is durable",
    edits: [
      edit(
        SESSION,
        "          entries: decision.append,",
        `          entries: decision.append.map((entry) => {
            if (entry.case === "toolCallStarted") this.#perform(live, { type: "send" });
            return entry;
          }),`,
      ),
      edit(
        SESSION,
        "            for (const effect of decision.effects) this.#perform(live, effect, asker);",
        '            for (const effect of decision.effects) if (effect.type !== "send") this.#perform(live, effect, asker);',
      ),
    ],
    suite: {
      file: "tests/faults/host-rules/reserving-and-waiting.test.ts",
      test: "names the instance and its generation in the started record, which is durable before the command is read",
    },
  },
  {
    name: "answer-before-append",
    what: "callers and reporters are answered before what they are told is durable",
    edits: [
      edit(
        SESSION,
        "      const settle = (): void => {",
        '      for (const effect of decision.effects) if (effect.type === "answer") this.#perform(live, effect, asker);\n      const settle = (): void => {',
      ),
    ],
    suite: {
      file: "tests/faults/host-rules/reporting.test.ts",
      test: "is recorded as the ending, and answered only when that is durable",
    },
  },
  {
    name: "undo-forgotten",
    what: "a decision whose append failed keeps the state it had made",
    edits: [edit(STEPS, "      taken.step.undo();\n", "")],
    suite: {
      file: "tests/faults/host-rules/reserving-and-waiting.test.ts",
      test: "a start that could not be recorded sends nothing, frees its slot and wakes whoever waits for it",
    },
  },
  {
    name: "failed-ending-forgotten",
    what: "an outcome that could not be recorded for lack of space is not posted again",
    edits: [edit(SESSION, "    live.held = event;\n", "    if (live.held === undefined) return;\n")],
    suite: {
      file: "tests/faults/host-rules/reporting.test.ts",
      test: "that the journal had no space for is recorded when space returns",
    },
  },
  {
    name: "send-on-reopen",
    what: "a call that is open after a restart is sent again",
    edits: [
      edit(
        CALL,
        'effects: [{ type: "arm_deadline", deadlineMs: deadlineOf(call.started) }]',
        'effects: [{ type: "arm_deadline", deadlineMs: deadlineOf(call.started) }, { type: "send" }]',
      ),
      WITHOUT_L1,
      WITHOUT_L4,
    ],
    suite: {
      file: "tests/faults/host-rules/restarting.test.ts",
      test: "is kept by an instance that attaches with it on its list, and its command is not written again",
    },
  },
  {
    name: "run-again-on-repeat",
    what: "a repeated call_id whose call has ended starts another call",
    edits: [edit(SESSION, "if (row !== undefined) return this.#answerRecorded(live, row, request);", "")],
    suite: { file: "tests/faults/host-rules/calling.test.ts", test: "answers what is recorded when the call has ended" },
  },
  {
    name: "second-ending",
    what: "a deadline, a cancel or a loss ends a call that has ended",
    edits: [
      edit(
        CALL,
        'function afterwards(call: Call & { phase: "ended" }, event: CallEvent & { next: number }): Decision {\n',
        'function afterwards(call: Call & { phase: "ended" }, event: CallEvent & { next: number }): Decision {\n  if (event.type === "deadline_passed" || event.type === "lost") return run({ ...call, phase: "running" }, event);\n',
      ),
      WITHOUT_L3,
      WITHOUT_L3_IN_THE_FOLD,
    ],
    suite: { file: "server/src/core/call-laws.test.ts" },
  },
  {
    name: "late-outcome-overwrites",
    what: "an outcome that comes after the ending takes its place",
    edits: [
      edit(
        CALL,
        "return { ...call, late: entry.value.outcome };",
        "return { ...call, late: entry.value.outcome, outcome: entry.value.outcome };",
      ),
    ],
    suite: { file: "server/src/core/call-laws.test.ts" },
  },
  {
    name: "late-outcome-recorded-often",
    what: "every outcome that comes after the ending is recorded, not the first alone",
    edits: [
      edit(CALL, "      if (call.late !== undefined) return { append: [], effects: [late] };\n", ""),
      edit(CALL, 'call.phase === "ended" && call.late === undefined && entry', 'call.phase === "ended" && entry'),
    ],
    suite: { file: "tests/faults/host-rules/reporting.test.ts", test: "makes one ending and at most one late outcome" },
  },
  {
    name: "event-after-ending",
    what: "an event is recorded for a call that has ended",
    edits: [
      edit(
        CALL,
        'return refuse("call_ended", ',
        'if (event.emitId !== "") return run({ ...call, phase: "running" }, event);\n      return refuse("call_ended", ',
      ),
      edit(CALL, 'assert(call.phase === "running", ', "assert(true, "),
    ],
    suite: { file: "tests/faults/host-rules/reporting.test.ts", test: "of an ended call is refused as call_ended" },
  },
  {
    name: "deadline-from-the-wall-clock",
    what: "the time that is left to a call is taken from the wall clock",
    edits: [
      edit(
        SESSION,
        "live.disarm = clock.after(live.deadlineAt - clock.monotonic(), () => {\n",
        "live.disarm = clock.after(effect.deadlineMs - clock.now(), () => {\n",
      ),
    ],
    suite: { file: "tests/faults/host-rules/time.test.ts", test: "changes no deadline, no liveness and no order" },
  },
  {
    name: "flush-left-to-the-system",
    what: "a commit is acknowledged before the disk has it",
    // No test can take the power away: what notices this is the guard, which therefore stays in.
    edits: [edit(WRITER, 'db.pragma("synchronous = FULL");', 'db.pragma("synchronous = NORMAL");')],
    suite: { file: "tests/faults/host-rules/draining.test.ts", test: "lets no instance attach that it does not know" },
  },
];
