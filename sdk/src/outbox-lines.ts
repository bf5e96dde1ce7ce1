/**
 * The text of an outbox: a first line that says what the file is, then one line for each outcome that waits to be
 * reported and one for each that was answered.
 *
 * 1. Every line carries the checksum of its JSON, and JSON has no line breaks of its own: whatever is broken, the lines
 *    around it can be read.
 * 2. Only the last line may be unfinished: that is what a process leaves that ends while it writes. Anything else that
 *    is not as it was written is damage.
 */
import { crc32 } from "node:zlib";
import { OutcomeSchema, type Outcome as WireOutcome } from "@aexhq/brain-proto";
import { fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";

/** How a call is named everywhere. */
export interface CallName {
  readonly sessionId: string;
  readonly callSequence: number;
}

/** One outcome that waits to be reported. */
export interface OutboxEntry extends CallName {
  /** The host whose call it is; nobody else can report it. */
  readonly hostId: string;
  /** The Tool, for messages. */
  readonly tool: string;
  readonly outcome: WireOutcome;
}

export const FIRST_LINE = "brain outbox 1\n";

const LINE_FEED = 0x0a;
/** Checksum and blank. */
const PREFIX_LENGTH = 9;

export function entryLine({ hostId, sessionId, callSequence, tool, outcome }: OutboxEntry): Buffer {
  return line({ hostId, sessionId, callSequence, tool, outcome: toJson(OutcomeSchema, outcome) });
}

export function answeredLine({ sessionId, callSequence }: CallName): Buffer {
  return line({ answered: { sessionId, callSequence } });
}

function line(content: object): Buffer {
  const json = JSON.stringify(content);
  return Buffer.from(`${checksum(json)} ${json}\n`);
}

function checksum(json: string | Buffer): string {
  return crc32(json).toString(16).padStart(8, "0");
}

export function callKey({ sessionId, callSequence }: CallName): string {
  return `${callSequence} ${sessionId}`;
}

/** What was found in an outbox. */
export interface OutboxContent {
  /** False for a file that never was an outbox: nothing in it is one's own to change. */
  readonly isOutbox: boolean;
  /** What still waits, oldest first. */
  readonly entries: readonly OutboxEntry[];
  /** Bytes of an unfinished last line. */
  readonly tornBytes: number;
  readonly damagedLines: number;
}

export function readOutbox(bytes: Buffer): OutboxContent {
  const entries = new Map<string, OutboxEntry>();
  const isFirstLine = bytes.subarray(0, FIRST_LINE.length).equals(Buffer.from(FIRST_LINE));
  let soundLines = isFirstLine ? 1 : 0;
  let damagedLines = 0;
  let tornBytes = 0;
  let at = isFirstLine ? FIRST_LINE.length : 0;
  while (at < bytes.length) {
    const end = bytes.indexOf(LINE_FEED, at);
    const text = bytes.subarray(at, end < 0 ? bytes.length : end);
    at += text.length + 1;
    const content = readLine(text);
    if (content !== undefined) {
      soundLines++;
      const key = callKey(content);
      if ("outcome" in content) entries.set(key, content);
      else entries.delete(key);
    } else if (end < 0) {
      tornBytes = text.length;
    } else {
      damagedLines++;
    }
  }
  // A file that was cut inside its first line is torn and no stranger's.
  const isCutShort = FIRST_LINE.startsWith(bytes.toString("latin1"));
  // Bytes before the first line's own text show that it was damaged, if what follows is sound.
  return { isOutbox: soundLines > 0 || isCutShort, entries: [...entries.values()], tornBytes, damagedLines };
}

function readLine(text: Buffer): OutboxEntry | CallName | undefined {
  const json = text.subarray(PREFIX_LENGTH);
  if (text.subarray(0, PREFIX_LENGTH).toString("latin1") !== `${checksum(json)} `) return undefined;
  try {
    const content = JSON.parse(json.toString()) as { answered?: unknown; outcome?: JsonValue };
    if (isCallName(content.answered)) return content.answered;
    const { hostId, tool } = content as { hostId?: unknown; tool?: unknown };
    if (!isCallName(content) || typeof hostId !== "string" || typeof tool !== "string" || content.outcome === undefined) return undefined;
    const outcome = fromJson(OutcomeSchema, content.outcome, { ignoreUnknownFields: true });
    if (outcome.status.case === undefined) return undefined;
    return { hostId, sessionId: content.sessionId, callSequence: content.callSequence, tool, outcome };
  } catch {
    return undefined;
  }
}

function isCallName(value: unknown): value is CallName {
  if (typeof value !== "object" || value === null) return false;
  const { sessionId, callSequence } = value as Record<string, unknown>;
  return typeof sessionId === "string" && Number.isSafeInteger(callSequence);
}
