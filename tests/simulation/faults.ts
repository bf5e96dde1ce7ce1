/** What can go wrong at a step, and what the steps are. */
export const FAULTS = {
  /** The driver asks its journal to append. */
  append: ["full", "unavailable", "crash before", "crash after"],
  /** The start of a call is durable, and the driver has not heard of it. */
  start: ["stream lost"],
  /** A command was handed to a stream, and its host has not read it. */
  write: ["stream lost", "crash"],
  /** A host's emit, report or detach reaches the server. */
  request: ["lost before", "lost after", "crash before", "crash after"],
  /** A caller is answered. */
  answer: ["lost", "crash"],
} as const;

export type StepKind = keyof typeof FAULTS;
export type FaultOf<Kind extends StepKind> = (typeof FAULTS)[Kind][number];

/** Says at every step what goes wrong there. */
export interface Faults {
  at<Kind extends StepKind>(kind: Kind): FaultOf<Kind> | undefined;
}

export const NO_FAULTS: Faults = { at: () => undefined };

/** One fault, at the Nth step of its kind. */
export class NthFault implements Faults {
  readonly #kind: StepKind;
  readonly #fault: string;
  #left: number;
  /** There was such a step. */
  happened = false;
  /** Steps are counted. */
  isArmed = true;

  constructor(kind: StepKind, fault: string, nth: number) {
    this.#kind = kind;
    this.#fault = fault;
    this.#left = nth;
  }

  at<Kind extends StepKind>(kind: Kind): FaultOf<Kind> | undefined {
    if (!this.isArmed || kind !== this.#kind || --this.#left !== 0) return undefined;
    this.happened = true;
    return this.#fault as FaultOf<Kind>;
  }
}
