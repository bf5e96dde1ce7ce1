import type { Edit, Fault } from "./fault.js";

const ENVIRONMENT = "server/src/environments/host/host-environment.ts";
const INSTANCE = "server/src/environments/host/instance.ts";
const HOSTS = "server/src/runtime/hosts.ts";
const SDK_HOST = "sdk/src/host.ts";
const SDK_CALL = "sdk/src/host-call.ts";
const SDK_OUTBOX = "sdk/src/outbox.ts";

const edit = (file: string, find: string, plant: string): Edit => ({ file, find, plant });

/** Faults of Brain's side of the host protocol. */
export const ENVIRONMENT_FAULTS: readonly Fault[] = [
  {
    name: "foreign-call-adopted",
    what: "an instance that lists a call of another host becomes a holder of it",
    edits: [edit(ENVIRONMENT, "held === undefined || held.receiver.hostId !== host.hostId", "held === undefined")],
    suite: { file: "tests/faults/host-rules/attaching.test.ts", test: "and by those that are not its host's" },
  },
  {
    name: "foreign-report-taken",
    what: "a host may report for a call that was sent to another",
    edits: [edit(HOSTS, "(hostId === undefined || started.receiver.hostId === hostId)", "hostId !== null")],
    suite: { file: "tests/faults/host-rules/reporting.test.ts", test: "from a host that was not sent the call" },
  },
  {
    name: "generation-unchecked-in-send",
    what: "a command is written to whatever stream the instance has by then",
    edits: [
      edit(
        ENVIRONMENT,
        "instance !== undefined && instance.generation === receiver.generation ? instance.stream",
        "instance !== undefined ? instance.stream",
      ),
    ],
    suite: { file: "tests/faults/host-rules/sending.test.ts", test: "is written only to the generation its start names" },
  },
  {
    name: "generation-unchecked-in-attach",
    what: "an attach that was overtaken by a later one takes its place",
    edits: [edit(ENVIRONMENT, "if (generation <= seen) {", "if (generation < 0) {")],
    suite: { file: "tests/faults/host-rules/attaching.test.ts", test: "with a generation not above the highest seen is refused" },
  },
  {
    name: "generation-unchecked-in-list",
    what: "an attach whose list lacks a call ends it although that call was sent to a later generation",
    edits: [edit(ENVIRONMENT, "held.receiver.generation <= upToGeneration && !listed", "!listed")],
    suite: { file: "tests/faults/host-rules/detaching.test.ts", test: "says nothing about calls of a higher generation than it names" },
  },
  {
    name: "undelivered-command-forgotten",
    what: "a call whose command could not be written is left to its deadline",
    edits: [edit(ENVIRONMENT, "    if (!written) unwritten();\n", "")],
    suite: { file: "tests/faults/host-rules/sending.test.ts", test: "is written to no other instance when its stream is gone" },
  },
  {
    name: "heartbeat-list-believed",
    what: "a call that a heartbeat's list lacks is ended",
    edits: [
      edit(
        ENVIRONMENT,
        "    return heldCalls === undefined ? [] : this.#list(host, instance, heldCalls);",
        "    if (heldCalls !== undefined) this.#endUndelivered(instance, heldCalls, instance.generation);\n    return heldCalls === undefined ? [] : this.#list(host, instance, heldCalls);",
      ),
    ],
    suite: { file: "tests/faults/host-rules/attaching.test.ts", test: "the list of a heartbeat ends nothing, whatever it lacks" },
  },
  {
    name: "lost-on-stream-loss",
    what: "an instance whose stream is lost is taken for gone, and its calls with it",
    edits: [
      edit(
        ENVIRONMENT,
        "    if (instance.stream !== stream) return;\n",
        '    if (instance.stream !== stream) return;\n    if (host.instances.get(instance.instanceId) === instance) return this.#remove(instance, "its stream was lost");\n',
      ),
    ],
    suite: { file: "tests/faults/host-rules/losing.test.ts", test: "a stream that is lost ends nothing" },
  },
  {
    name: "holder-forgotten",
    what: "an instance that lists a call is not taken for a holder of it",
    edits: [edit(ENVIRONMENT, "      held.holders.add(instance);\n      if", "      if")],
    suite: { file: "tests/faults/host-rules/losing.test.ts", test: "ends no call that another instance holds by its heartbeat's list" },
  },
  {
    name: "grace-before-listening",
    what: "after a restart instances are missed before Brain listens to them",
    edits: [edit(ENVIRONMENT, "      if (this.#listening) instance.watch();", "      instance.watch();")],
    suite: { file: "tests/faults/host-rules/restarting.test.ts", test: "is given up by nobody before Brain listens" },
  },
  {
    name: "restart-ends-host-calls",
    what: "a call of a host is given up when Brain restarts",
    edits: [edit(ENVIRONMENT, "return call.started.receiver !== undefined;", "return call.started.receiver === undefined;")],
    suite: { file: "tests/faults/host-rules/restarting.test.ts", test: "survives a crash in the same way" },
  },
  {
    name: "slots-uncounted",
    what: "two calls get one slot",
    edits: [edit(INSTANCE, "this.attached && this.named.size < this.concurrency", "this.attached")],
    suite: {
      file: "tests/faults/host-rules/reserving-and-waiting.test.ts",
      test: "counts a start that is not yet durable as a slot in use",
    },
  },
  {
    name: "slots-forgotten",
    what: "an instance that comes back is taken to have every slot free",
    edits: [edit(ENVIRONMENT, "      for (const held of naming) instance.named.add(held);\n", "")],
    suite: { file: "tests/faults/host-rules/losing.test.ts", test: "its slots are still those its open calls use" },
  },
];

/** Faults of a host that is written with the SDK. */
export const SDK_FAULTS: readonly Fault[] = [
  {
    name: "report-before-flush",
    what: "an outcome is reported before the outbox has it on the disk",
    edits: [edit(SDK_HOST, "      await outbox?.save(", "      void outbox?.save(")],
    suite: { file: "sdk/src/host.test.ts", test: "is reported when it is flushed to the outbox, and not before" },
  },
  {
    name: "list-before-drop",
    what: "an instance makes its list, and reads on from the old stream before it drops that",
    edits: [
      edit(SDK_HOST, "  #reattachAtOnce = false;\n", "  #reattachAtOnce = false;\n  #listed: HeldCalls | undefined;\n"),
      edit(
        SDK_HOST,
        "      this.#reattachAtOnce = true;\n",
        "      this.#reattachAtOnce = true;\n      this.#listed = this.#heldCalls();\n      await this.#up.next(1);\n",
      ),
      edit(
        SDK_HOST,
        "      servedTools: served.list(),\n",
        "      servedTools: served.list(),\n      ...(this.#listed === undefined ? {} : { heldCalls: this.#listed }),\n",
      ),
    ],
    suite: { file: "tests/mutants/attaching-anew.test.ts", test: "is on the list of that attach, or is never run" },
  },
  {
    name: "command-run-twice",
    what: "a second command for a call that is held runs its function again",
    edits: [edit(SDK_HOST, "    if (this.#held.has(key)) return;\n", "")],
    suite: { file: "tests/mutants/attaching-anew.test.ts", test: "runs once, however often its command comes" },
  },
  {
    name: "outcome-forgotten-early",
    what: "a call leaves the list before its report is answered",
    edits: [
      edit(
        SDK_HOST,
        "      for (const outcome of outcomes) await this.#report(call, outcome);\n",
        "      this.#held.delete(callKey(call));\n      for (const outcome of outcomes) await this.#report(call, outcome);\n",
      ),
    ],
    suite: { file: "sdk/src/host.test.ts", test: "are on the list of the first attach and of every one until they are answered" },
  },
  {
    name: "ending-before-emit",
    what: "an outcome is reported while an emit of its call is not answered",
    edits: [edit(SDK_CALL, "    while (this.#openEmits.size > 0) await Promise.allSettled(this.#openEmits);\n", "")],
    suite: { file: "sdk/src/host-call.test.ts", test: "that nobody awaited is answered before the outcome is handed over" },
  },
  {
    name: "outbox-not-flushed",
    what: "an outcome counts as saved when it is written, flushed or not",
    edits: [edit(SDK_OUTBOX, "Promise.all([this.#file.datasync(), ", "Promise.all([undefined, ")],
    suite: { file: "sdk/src/outbox.test.ts", test: "comes before save resolves, and one serves all that have come together" },
  },
];
