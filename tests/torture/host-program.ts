// A host built with the SDK, that writes down what its functions do and ends itself where it is told to.
import { randomUUID } from "node:crypto";
import { setTimeout as after } from "node:timers/promises";
import { Disposition, type Outcome as WireOutcome } from "@aexhq/brain-proto";
import { Brain, type BrainOptions } from "../../sdk/src/client.js";
import { isBrainError } from "../../sdk/src/errors.js";
import { AttachRoute } from "../../sdk/src/host-routes/attach.js";
import type { HostRoute } from "../../sdk/src/host-routes/route.js";
import { SseRoute } from "../../sdk/src/host-routes/sse.js";
import { WatchRoute } from "../../sdk/src/host-routes/watch.js";
import type { ToolFactory } from "../../sdk/src/tool.js";
import { outcomeText } from "./evidence.js";
import { type HostPoint, type Kill, KillPoints } from "./kill-points.js";
import { watchStalls } from "./stalls.js";
import { Witness } from "./witness.js";
import { workTool } from "./work-tool.js";

export interface HostOrder {
  readonly order: "serve";
  readonly name: string;
  readonly witnessFile: string;
  readonly baseUrl: string;
  readonly hostId: string;
  readonly hostToken: string;
  readonly hostRoute: "attach" | "watch" | "sse";
  readonly environment: string;
  readonly maxConcurrentCalls: number;
  readonly outbox?: string;
  readonly kill?: Kill<HostPoint>;
}

let brain: Brain | undefined;
let isLeaving = false;

/** Stands around every route, whichever the SDK chooses: what it sends and reads is written down and may be the end. */
function watchRoutes(points: KillPoints<HostPoint>, witness: Witness): void {
  for (const { prototype } of [AttachRoute, WatchRoute, SseRoute] as { prototype: HostRoute }[]) {
    const { open, emitEvent, reportOutcome } = prototype;
    prototype.open = function (this: HostRoute, attachment) {
      const { instanceId, generation } = attachment;
      witness.write({ what: "attached", instanceId, generation });
      const stream = open.call(this, attachment);
      points.pass("attach.written");
      points.passSoon("attach.sent");
      const read = stream.read.bind(stream);
      stream.read = (take) =>
        read((command) => {
          const { kind } = command;
          if (kind.case === "attached") {
            witness.write({ what: "welcomed", instanceId, generation });
            points.pass("attach.welcomed");
          }
          if (kind.case !== "runTool") return take(command);
          witness.write({ what: "commanded", sessionId: kind.value.sessionId, callSequence: kind.value.callSequence });
          points.pass("command.read");
          take(command);
          points.pass("command.listed");
        });
      return stream;
    };
    prototype.emitEvent = async function (this: HostRoute, request) {
      points.pass("emit.before");
      const emitting = emitEvent.call(this, request);
      points.passSoon("emit.sent");
      const answer = await emitting;
      points.pass("emit.answered");
      return answer;
    };
    prototype.reportOutcome = async function (this: HostRoute, request) {
      const { sessionId, callSequence } = request;
      const outcome = outcomeText(request.outcome as WireOutcome | undefined);
      witness.write({ what: "reporting", sessionId, callSequence, outcome });
      points.pass("report.before");
      const reporting = reportOutcome.call(this, request);
      points.pass("report.written");
      points.passSoon("report.sent");
      const answer = await reporting;
      const disposition = Disposition[answer.disposition] ?? String(answer.disposition);
      witness.write({ what: "acknowledged", sessionId, callSequence, outcome, disposition });
      points.pass("report.answered");
      points.passSoon("report.forgotten");
      return answer;
    };
  }
}

function witnessedWork(points: KillPoints<HostPoint>, witness: Witness): ToolFactory {
  return workTool(async ({ call, ms, emits, throws }, ctx) => {
    points.pass("function.entered");
    witness.write({ what: "start", call, sessionId: ctx.sessionId, callSequence: ctx.sequence });
    points.pass("function.started");
    for (let nth = 0; nth < emits; nth++) {
      const mark = randomUUID();
      try {
        const sequence = await ctx.emit("progress", { mark });
        witness.write({ what: "emitted", call, sequence, mark });
      } catch {
        // The call has ended meanwhile: the function is done with talking, not with its work.
        break;
      }
    }
    await after(ms);
    // Made here and nowhere else: a second run would have another.
    const value = randomUUID();
    points.pass("function.before_end");
    witness.write({ what: "end", call, value, throws });
    points.pass("function.ended");
    if (throws) throw new Error(value);
    return value;
  });
}

async function serve(order: HostOrder): Promise<void> {
  const witness = new Witness(order.witnessFile, order.name);
  const points = new KillPoints(order.kill, witness);
  watchStalls(witness);
  watchRoutes(points, witness);
  const { baseUrl, hostId, hostToken, hostRoute, maxConcurrentCalls, outbox } = order;
  const options: BrainOptions & { outbox?: string } = {
    baseUrl,
    credentials: { hostId, hostToken },
    hostRoute,
    maxConcurrentCalls,
    log: () => undefined,
    ...(outbox === undefined ? {} : { outbox }),
  };
  brain = new Brain(options);
  await brain.serve({ environment: order.environment, tools: [witnessedWork(points, witness)] });
  process.send?.({ event: "serving" });
}

async function leave(): Promise<void> {
  isLeaving = true;
  await brain?.close();
  process.exit(0);
}

process.on("message", (order: HostOrder | { order: "stop" }) => {
  (order.order === "serve" ? serve(order) : leave()).catch((error: unknown) => {
    // Told to leave before it served at all.
    if (isLeaving && isBrainError(error) && error.reason === "closed") return;
    process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    process.exit(1);
  });
});
process.on("disconnect", () => process.exit(1));
process.send?.({ event: "ready" });
