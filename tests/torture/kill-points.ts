import type { Witness } from "./witness.js";

/** Between any two steps of a call, as the server takes them. */
export const SERVER_POINTS = [
  "append.before",
  "append.durable",
  "attach.before",
  "attach.welcomed",
  "command.before",
  "command.written",
  "command.flushed",
  "emit.read",
  "emit.before_answer",
  "report.read",
  "report.before_answer",
  "report.answered",
  "call.read",
  "call.before_answer",
  "call.answered",
  "heartbeat.read",
] as const;
export type ServerPoint = (typeof SERVER_POINTS)[number];

/** The same, as the process takes them that runs the function. */
export const HOST_POINTS = [
  "attach.written",
  "attach.sent",
  "attach.welcomed",
  "command.read",
  "command.listed",
  "function.entered",
  "function.started",
  "function.before_end",
  "function.ended",
  "emit.before",
  "emit.sent",
  "emit.answered",
  "report.before",
  "report.written",
  "report.sent",
  "report.answered",
  "report.forgotten",
] as const;
export type HostPoint = (typeof HOST_POINTS)[number];

export interface Kill<Point extends string> {
  readonly point: Point;
  /** The how manyth passing of the point. */
  readonly nth: number;
}

/** Ends this process, as a crash does, when it passes a point for the nth time. */
export class KillPoints<Point extends string> {
  readonly #kill: Kill<Point> | undefined;
  readonly #witness: Witness;
  #passed = 0;

  constructor(kill: Kill<Point> | undefined, witness: Witness) {
    this.#kill = kill;
    this.#witness = witness;
  }

  pass(point: Point): void {
    if (this.#kill?.point !== point) return;
    this.#passed++;
    if (this.#passed !== this.#kill.nth) return;
    this.#witness.write({ what: "killed", point, nth: this.#passed });
    process.kill(process.pid, "SIGKILL");
  }

  /** The same once the operating system has what was written in this turn of the event loop. */
  passSoon(point: Point): void {
    if (this.#kill?.point !== point) return;
    setImmediate(() => setImmediate(() => this.pass(point)));
  }
}
