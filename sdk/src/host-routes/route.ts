/**
 * One way for an instance to attach and to be answered. `host.ts` stands before all of them and knows none.
 */
import type {
  Command,
  DetachRequest,
  EmitEventRequest,
  EmitEventResponse,
  HeartbeatRequest,
  HeartbeatResponse,
  HostAttachment,
  ReportOutcomeRequest,
  ReportOutcomeResponse,
} from "@aexhq/brain-proto";

export type HostRouteName = "attach" | "watch" | "sse";

/** One attach: the commands it brings, until it is dropped or lost. */
export interface CommandStream {
  /** Hands over each command as it is read, in order. Resolves when the stream ends; rejects with a BrainError. */
  read(take: (command: Command) => void): Promise<void>;
  /** Lets go of the stream: nothing is taken from it any more. Harmless when repeated. */
  drop(): void;
}

export interface HostRoute {
  readonly name: HostRouteName;
  /** Writes the attach in this very step, so that the list in it is true when it is written. */
  open(attachment: HostAttachment): CommandStream;
  /** How long the answer to a request may take before its connection is taken for dead, and it rejects with `unavailable`. */
  hangUpAfter(ms: number): void;
  /** Requests can be made at any time, whether a stream is up or not. */
  heartbeat(request: HeartbeatRequest): Promise<HeartbeatResponse>;
  emitEvent(request: EmitEventRequest): Promise<EmitEventResponse>;
  reportOutcome(request: ReportOutcomeRequest): Promise<ReportOutcomeResponse>;
  /** Bounded in time by the caller, who closes the route. */
  detach(request: DetachRequest): Promise<void>;
  /** Lets go of every connection; open requests reject. */
  close(): void;
}
