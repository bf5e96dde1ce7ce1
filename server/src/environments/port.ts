import type { CancelCause, Failure, Receiver, ToolCallStarted } from "@aexhq/brain-proto";
import type { EnvironmentKind, Placement } from "../core/catalogue.js";

/** How a call is named everywhere. */
export interface CallName {
  readonly sessionId: string;
  readonly callSequence: number;
}

/** What an Environment may tell the session driver of its own accord; everything else comes as somebody's report. */
export type Notice =
  /** The call is known not to have run. */
  | { readonly type: "undeliverable"; readonly failure: Failure }
  /** Whatever held the call is gone for good. */
  | { readonly type: "lost"; readonly failure: Failure };

/** A call that wants a receiver and is in no record yet. */
export interface WaitingCall {
  readonly sessionId: string;
  readonly callId: string;
  readonly placement: Placement;
  readonly definitionSha256: string;
  /** Takes the decision to start before it returns: the call is open afterwards, or the grant was not needed. */
  grant(receiver: Receiver | undefined): void;
  /** Ends the waiting with `error`; nothing was sent. */
  giveUp(failure: Failure): void;
}

/** A call between its start and its ending. */
export interface OpenCall extends CallName {
  readonly started: ToolCallStarted;
  readonly placement: Placement;
  /** Milliseconds to the deadline on the monotonic clock; zero or less when it has passed. */
  remainingMs(): number;
  /** Posts to the session driver. Harmless for a call that has ended. */
  notify(notice: Notice): void;
}

/**
 * Where Tools of one kind run. An Environment starts, sends and ends nothing by itself: it hands out receivers,
 * carries out `send` and `stop`, and posts notices; the driver decides.
 */
export interface EnvironmentPort {
  readonly kind: EnvironmentKind;
  /** Refuses what a session may not have, by name, before the session exists. @throws Refusal */
  admit(placement: Placement): Promise<void>;
  /** Finds a receiver now (`grant` is called before this returns) or later. */
  acquire(waiting: WaitingCall): void;
  /** The call no longer waits. */
  leave(waiting: WaitingCall): void;
  /** The call is open as of the decision just taken; its place at the receiver is taken. */
  opened(call: OpenCall): void;
  /** The call is no longer open, because it ended or because its start could not be recorded. `opened` again when that is taken back. */
  closed(call: OpenCall): void;
  /** The ending of the call is durable, or its start was taken back: it is never `opened` again. */
  settled(call: OpenCall): void;
  /** Hands the call to its receiver, once. Posts `undeliverable` when nothing was written. */
  send(call: OpenCall): void;
  /** Asks whatever runs the call to stop; nobody waits for it. */
  stop(call: OpenCall, cause: CancelCause): void;
  /** After a restart: whether what ran the call may still be running it and can come back. */
  canReturn(call: OpenCall): boolean;
}

export type Environments = Readonly<Partial<Record<EnvironmentKind, EnvironmentPort>>>;
