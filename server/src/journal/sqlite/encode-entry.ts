import { type Record as JournalRecord, RecordSchema } from "@aexhq/brain-proto";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { assert } from "../../core/assert.js";
import type { Entry } from "../port.js";

/** What an entry changes in the projections beside its record. */
export type Projection =
  | {
      readonly type: "session_created";
      readonly requestId: string | null;
      readonly createTimeMs: number;
      readonly labels: Readonly<Record<string, string>>;
    }
  | { readonly type: "session_ended" }
  | { readonly type: "call_started"; readonly callId: string }
  | { readonly type: "call_ended"; readonly callSequence: number }
  | { readonly type: "late_outcome"; readonly callSequence: number }
  | { readonly type: "event_emitted"; readonly callSequence: number; readonly emitId: string | null }
  | { readonly type: "none" };

/** An entry as the writer takes it: plain data that crosses to a thread. */
export interface EncodedEntry {
  /** The entry's field name in `Record`, for people who look into the table. */
  readonly kind: string;
  /** A `Record` that holds the entry alone: what a reader does not know of it survives as an unknown field. */
  readonly body: Uint8Array;
  readonly projection: Projection;
}

const KINDS: ReadonlyMap<string, string> = new Map(
  RecordSchema.oneofs.flatMap((oneof) => oneof.fields).map((field) => [field.localName, field.name]),
);

/** Tags, sequence and commit time of a Record, at their largest. */
const PLACE_BYTES = 32;

/** An upper bound of the encoded size of a whole Record, from the size of its stored body. */
export function recordBytes(sessionId: string, bodyBytes: number): number {
  return bodyBytes + PLACE_BYTES + Buffer.byteLength(sessionId);
}

export function encodeEntry(sessionId: string, entry: Entry, nowMs: number, maxBytes: number): EncodedEntry {
  const kind = KINDS.get(entry.case);
  if (kind === undefined) return assert.fail(`"${String(entry.case)}" is an entry of Record`);
  const body = toBinary(RecordSchema, { $typeName: "brain.v1.Record", sessionId: "", sequence: 0, entry });
  const bytes = recordBytes(sessionId, body.byteLength);
  if (bytes > maxBytes) assert.fail(`a ${kind} record of session ${sessionId} has at most ${maxBytes} bytes, not ${bytes}`);
  return { kind, body, projection: projectEntry(entry, nowMs) };
}

export function projectEntry(entry: Entry, nowMs: number): Projection {
  switch (entry.case) {
    case "sessionCreated": {
      const { session, requestId } = entry.value;
      return {
        type: "session_created",
        requestId: requestId === "" ? null : requestId,
        createTimeMs: session?.createTime === undefined ? nowMs : timestampMs(session.createTime),
        labels: session?.labels ?? {},
      };
    }
    case "sessionEnded":
      return { type: "session_ended" };
    case "toolCallStarted":
      return { type: "call_started", callId: entry.value.callId };
    case "toolCallEnded":
      return { type: "call_ended", callSequence: entry.value.callSequence };
    case "toolCallLateOutcome":
      return { type: "late_outcome", callSequence: entry.value.callSequence };
    case "eventEmitted": {
      const { origin, emitId } = entry.value;
      if (origin.case !== "callSequence") return { type: "none" };
      return { type: "event_emitted", callSequence: origin.value, emitId: emitId === "" ? null : emitId };
    }
    case "toolCallCancelRequested":
      return { type: "none" };
    default:
      return entry satisfies never;
  }
}

/** The Record of a stored row. */
export function decodeRecord(sessionId: string, sequence: number, commitTimeMs: number, body: Uint8Array): JournalRecord {
  const record = fromBinary(RecordSchema, body);
  record.sessionId = sessionId;
  record.sequence = sequence;
  record.commitTime = timestampFromMs(commitTimeMs);
  return record;
}
