import { CallToolRequestSchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { type Ground, latency } from "./ground.js";
import { refusalReason, request } from "./requests.js";
import type { BrainLife } from "./server.js";
import type { Ask } from "./truth.js";

/** Refusals after which the same request is sent again. */
const AGAIN: ReadonlySet<string> = new Set(["journal_full", "journal_unavailable", "server_draining", "internal"]);
const UNARY = { frozenUntil: 0, mayDouble: false };

/**
 * Somebody who calls a Tool: repeats the same request until it is answered, whatever happens to the connection and to
 * the server, and takes a refusal only where repeating cannot change it.
 */
export function call(ground: Ground, ask: Ask, isFirst: boolean): void {
  const { schedule, random, weather, server, oracle, trace, reached } = ground;
  let attempts = 0;
  let over = false;
  let answeredInLife: number | undefined;
  const done = (how: "answered" | "refused"): void => {
    over = true;
    ask.over ??= how;
    if (!isFirst && how === "answered") reached.reach("two callers of one call");
  };
  const again = (): void => {
    if (!over) schedule.after(random.next() * 300, attempt);
  };
  const answered = (life: BrainLife): void => {
    trace.note(`caller of ${ask.callId} is answered`);
    if (answeredInLife !== undefined && answeredInLife !== life.number) reached.reach("repeat of an ended call after a restart");
    answeredInLife ??= life.number;
    const fault = ground.faults.at("answer");
    if (fault === "crash") {
      schedule.after(0, () => server.crash(100));
      again();
      return;
    }
    if (fault === "lost" || (!ground.calm && random.chance(weather.lostAnswer))) {
      reached.reach("answer lost on the way to the caller");
      again();
      return;
    }
    done("answered");
  };
  const attempt = (): void => {
    attempts++;
    if (!ground.calm && random.chance(weather.lostRequest)) return void schedule.after(200, again);
    schedule.after(latency(ground), () => server.reach(arrive, again));
  };
  const arrive = (life: BrainLife): void => {
    let gone = false;
    const aborting = new AbortController();
    const forgetDeath = life.onDeath(() => {
      if (gone) return;
      gone = true;
      again();
    });
    if (attempts > 1) reached.reach("caller that left and asked again");
    noteArrival(ground, ask);
    if (!ground.calm && random.chance(weather.callerLeaves)) {
      schedule.after(random.span(300), () => {
        if (gone || over) return;
        gone = true;
        forgetDeath();
        aborting.abort(new Error("the caller is gone"));
        again();
      });
    }
    const { sessionId, callId, name, environment, inputJson, timeoutMs } = ask;
    const message = create(CallToolRequestSchema, { sessionId, callId, name, environment, inputJson, timeout: durationFromMs(timeoutMs) });
    life.brain.sessions.callTool(message, { principal: "api", traceparent: "" }, aborting.signal).then(
      (ending) => {
        if (!life.alive) return;
        forgetDeath();
        oracle.toldEnding(ask, ending);
        if (gone) return;
        gone = true;
        answered(life);
      },
      (error: unknown) => {
        if (!life.alive || gone) return;
        gone = true;
        forgetDeath();
        const reason = refusalReason(ground, error);
        if (AGAIN.has(reason)) return again();
        trace.note(`caller of ${callId} is refused ${reason}`);
        if (reason !== "session_ended" || !ground.truth.sessionEndsAsked.has(sessionId)) {
          oracle.fail(`the caller of ${callId} is refused ${reason}`, [callId]);
        }
        done("refused");
      },
    );
  };
  attempt();
}

function noteArrival(ground: Ground, ask: Ask): void {
  const { schedule, file, trace } = ground;
  trace.note(`call ${ask.callId} arrives`);
  ask.firstArrivalMs ??= schedule.now;
  if (file.call(ask.sessionId, ask) === undefined) ask.lastArrivalMs = schedule.now;
}

/** Cancels a call, and asks again while it is on its way, or gives up. */
export function cancel(ground: Ground, ask: Ask): void {
  const { schedule, oracle, reached, trace, file, random } = ground;
  const givesUp = !ground.calm && random.chance(0.2);
  const send = (life: BrainLife): Promise<number> => {
    ask.cancelAsked = true;
    trace.note(`cancel of ${ask.callId} arrives`);
    const row = file.call(ask.sessionId, ask);
    if (row?.endSequence !== undefined) reached.reach("cancel of an ended call");
    const by = row === undefined ? { callId: ask.callId } : { callSequence: row.callSequence };
    return life.brain.sessions.cancelCall(ask.sessionId, by, "enough", "api");
  };
  request<number>(
    ground,
    UNARY,
    send,
    (heard) => {
      if (heard.type !== "answered" && ask.over === undefined && !givesUp) schedule.after(100, () => cancel(ground, ask));
    },
    (_, callSequence) => oracle.toldCancelled(ask, callSequence),
  );
}

/** Ends a session, and asks again until that is answered. */
export function endSession(ground: Ground, sessionId: string): void {
  const { oracle, schedule, trace, truth } = ground;
  const send = async (life: BrainLife): Promise<void> => {
    truth.sessionEndsAsked.add(sessionId);
    trace.note(`end of session ${trace.name(sessionId)} arrives`);
    await life.brain.sessions.end(sessionId, "api");
  };
  request<void>(
    ground,
    UNARY,
    send,
    (heard) => {
      if (heard.type !== "answered") schedule.after(100, () => endSession(ground, sessionId));
    },
    () => oracle.toldSessionEnded(sessionId),
  );
}
