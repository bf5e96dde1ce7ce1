import { createHash, randomBytes, randomUUID } from "node:crypto";
import {
  type CallReference,
  type EmitEventRequest,
  type HeldCalls,
  type Host,
  type HostAttachment,
  HostInstanceSchema,
  HostSchema,
  InstanceState,
  type RegisterHostRequest,
  type ReportOutcomeRequest,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { LIMITS } from "../config.js";
import { checkKey, quote } from "../core/names.js";
import { utf8Length } from "../core/outcome.js";
import { invalidArgument, Refusal } from "../core/refusal.js";
import type { CommandStream } from "../environments/host/command-stream.js";
import type { HostEnvironment } from "../environments/host/host-environment.js";
import type { Instance } from "../environments/host/instance.js";
import type { HostRow, Journal } from "../journal/port.js";
import type { Clock } from "./clock.js";
import type { OwnedCall, Reported } from "./live-call.js";
import { checkPageSize } from "./pages.js";
import { refusing } from "./refusing.js";
import type { Sessions } from "./sessions.js";

/** Registered hosts, their attached instances, and what they report. */
export class Hosts {
  readonly #journal: Journal;
  readonly #clock: Clock;
  readonly #environment: HostEnvironment;
  readonly #sessions: Sessions;

  constructor(ports: { journal: Journal; clock: Clock; environment: HostEnvironment; sessions: Sessions }) {
    this.#journal = ports.journal;
    this.#clock = ports.clock;
    this.#environment = ports.environment;
    this.#sessions = ports.sessions;
  }

  async register(request: RegisterHostRequest): Promise<{ hostId: string; hostToken: string }> {
    if (request.requestId !== "") checkKey("request_id", request.requestId);
    const bytes = utf8Length(request.displayName);
    if (bytes > LIMITS.labelBytes) throw invalidArgument("display_name", `is ${bytes} bytes; at most ${LIMITS.labelBytes} are allowed`);
    const hostToken = `brain_host_${randomBytes(32).toString("base64url")}`;
    const row = await refusing(
      this.#journal.putHost({
        hostId: randomUUID(),
        displayName: request.displayName,
        createTimeMs: this.#clock.now(),
        tokenSha256: createHash("sha256").update(hostToken).digest(),
        requestId: request.requestId,
      }),
    );
    return { hostId: row.hostId, hostToken };
  }

  /** @throws Refusal */
  async attach(hostId: string, attachment: HostAttachment, answers?: number): Promise<CommandStream> {
    await this.#row(hostId);
    return this.#environment.attach(hostId, attachment, answers);
  }

  heartbeat(hostId: string, instanceId: string, heldCalls: HeldCalls | undefined): CallReference[] {
    return this.#environment.heartbeat(hostId, instanceId, heldCalls);
  }

  heard(hostId: string, instanceId: string): void {
    this.#environment.heard(hostId, instanceId);
  }

  detach(hostId: string, instanceId: string, generation: number, heldCalls: HeldCalls | undefined): void {
    this.#environment.detach(hostId, instanceId, generation, heldCalls);
  }

  /** `hostId` undefined speaks for every host (the API token). */
  emit(hostId: string | undefined, request: EmitEventRequest): Promise<number> {
    const { sessionId, callSequence, kind, dataJson, emitId } = request;
    return this.#sessions.emit(sessionId, callSequence, receivedBy(hostId), { kind, dataJson, emitId });
  }

  report(hostId: string | undefined, request: ReportOutcomeRequest): Promise<Reported> {
    const { sessionId, callSequence, outcome } = request;
    return this.#sessions.report(sessionId, callSequence, receivedBy(hostId), outcome, hostId === undefined ? "api" : `host:${hostId}`);
  }

  async get(hostId: string): Promise<Host> {
    return this.#describe(await this.#row(hostId));
  }

  async list(pageToken: string, pageSize: number): Promise<{ hosts: Host[]; nextPageToken: string }> {
    const { hosts, nextPageToken } = await this.#journal.listHosts(pageToken, checkPageSize(pageSize));
    return { hosts: hosts.map((row) => this.#describe(row)), nextPageToken };
  }

  async delete(hostId: string): Promise<void> {
    await this.#row(hostId);
    const instances = this.#environment.instances(hostId);
    if (instances.length > 0) {
      throw new Refusal(
        "host_in_use",
        `host ${hostId} has ${instances.length} instances, attached or holding calls; stop them, then delete it`,
        {
          host_id: hostId,
        },
      );
    }
    await refusing(this.#journal.deleteHost(hostId));
    this.#environment.forgetHost(hostId);
  }

  async #row(hostId: string): Promise<HostRow> {
    const row = await this.#journal.findHost(hostId);
    if (row === undefined)
      throw new Refusal("host_not_found", `there is no host ${quote(hostId)}; register one with RegisterHost`, {
        host_id: hostId.slice(0, 80),
      });
    return row;
  }

  #describe(row: HostRow): Host {
    return create(HostSchema, {
      hostId: row.hostId,
      displayName: row.displayName,
      createTime: timestampFromMs(row.createTimeMs),
      instances: this.#environment.instances(row.hostId).map((instance) =>
        create(HostInstanceSchema, {
          instanceId: instance.instanceId,
          generation: instance.generation,
          state: stateOf(instance),
          lastHeardTime: timestampFromMs(instance.lastHeardWallMs),
          openCalls: instance.named.size,
          maxConcurrentCalls: instance.concurrency,
          servedTools: instance.servedTools,
        }),
      ),
    });
  }
}

function stateOf(instance: Instance): InstanceState {
  if (instance.silent) return InstanceState.SILENT;
  return instance.attached ? InstanceState.ATTACHED : InstanceState.STREAM_LOST;
}

/** A call belongs to the host whose instance it was sent to; for every other host it does not exist. */
function receivedBy(hostId: string | undefined): (call: OwnedCall) => boolean {
  return ({ started }) => started.receiver !== undefined && (hostId === undefined || started.receiver.hostId === hostId);
}
