import {
  type AttachRequest,
  type AttachResponse,
  type Command,
  DetachResponseSchema,
  EmitEventResponseSchema,
  HeartbeatResponseSchema,
  type HostAttachment,
  HostService,
  RefusalSchema,
  ReportOutcomeResponseSchema,
} from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import type { ConnectRouter } from "@connectrpc/connect";
import { quote } from "../core/names.js";
import { invalidArgument } from "../core/refusal.js";
import type { CommandStream } from "../environments/host/command-stream.js";
import type { Brain } from "../runtime/brain.js";
import type { Hosts } from "../runtime/hosts.js";
import type { Log } from "../runtime/log.js";
import { type Principal, principalOf, requireHost } from "./authorize.js";
import { isRefusal, toConnectError } from "./connect-error.js";

export function registerHostService(router: ConnectRouter, brain: Brain, log: Log): void {
  const { hosts } = brain;
  router.service(HostService, {
    registerHost: (request) => hosts.register(request),
    async *watchCommands({ attachment }, context) {
      if (attachment === undefined) throw invalidArgument("attachment", "is missing; name the host and the instance");
      requireHost(principalOf(context), attachment.hostId);
      for await (const command of commands(hosts, attachment.hostId, attachment, context.signal)) yield { command };
    },
    attach: (requests, context) => attach(hosts, requests, principalOf(context), context.signal, log),
    heartbeat({ hostId, instanceId, heldCalls }, context) {
      requireHost(principalOf(context), hostId);
      return { ended: hosts.heartbeat(hostId, instanceId, heldCalls) };
    },
    async emitEvent(request, context) {
      return { sequence: await hosts.emit(speaksFor(principalOf(context)), request) };
    },
    async reportOutcome(request, context) {
      const { disposition, standing } = await hosts.report(speaksFor(principalOf(context)), request);
      return { disposition, standingOutcome: standing };
    },
    detach({ hostId, instanceId, generation, heldCalls }, context) {
      requireHost(principalOf(context), hostId);
      hosts.detach(hostId, instanceId, generation, heldCalls);
      return {};
    },
    async getHost({ hostId }) {
      return { host: await hosts.get(hostId) };
    },
    listHosts: ({ pageToken, pageSize }) => hosts.list(pageToken, pageSize),
    async deleteHost({ hostId }) {
      await hosts.delete(hostId);
      return {};
    },
  });
}

/** The commands of an attached instance, for the routes that carry nothing else. */
export async function* commands(hosts: Hosts, hostId: string, attachment: HostAttachment, signal: AbortSignal): AsyncGenerator<Command> {
  const stream = await hosts.attach(hostId, attachment);
  const left = (): void => stream.close();
  signal.addEventListener("abort", left);
  if (signal.aborted) stream.close();
  try {
    for await (const { message } of stream) if (message.case === "command") yield message.value;
  } finally {
    signal.removeEventListener("abort", left);
  }
}

/**
 * One stream both ways: requests are answered as they are done, between the commands. Written as a plain iterator for
 * the same reason as the command stream.
 */
function attach(
  hosts: Hosts,
  requests: AsyncIterable<AttachRequest>,
  principal: Principal,
  signal: AbortSignal,
  log: Log,
): AsyncIterable<AttachResponse> {
  return {
    [Symbol.asyncIterator]() {
      let responses: AsyncIterator<AttachResponse, void, undefined> | undefined;
      const open = async (): Promise<IteratorResult<AttachResponse, void>> => {
        responses = (await openAttach(hosts, requests, principal, signal, log))[Symbol.asyncIterator]();
        return responses.next();
      };
      return {
        next: () => (responses === undefined ? open() : responses.next()),
        // Where it waits for the attachment, the signal ends what becomes of it.
        return: () => responses?.return?.() ?? Promise.resolve({ done: true, value: undefined }),
        throw: (error: unknown) => responses?.throw?.(error) ?? Promise.reject(error),
      };
    },
  };
}

async function openAttach(
  hosts: Hosts,
  requests: AsyncIterable<AttachRequest>,
  principal: Principal,
  signal: AbortSignal,
  log: Log,
): Promise<CommandStream> {
  const reader = requests[Symbol.asyncIterator]();
  const first = await reader.next();
  if (first.done === true || first.value.message.case !== "attachment") {
    throw invalidArgument("message", "the first message of an Attach stream must be an attachment");
  }
  const attachment = first.value.message.value;
  requireHost(principal, attachment.hostId);
  const stream = await hosts.attach(attachment.hostId, attachment, first.value.messageId);
  // The signal is of this RPC alone and ends with it.
  signal.addEventListener("abort", () => stream.close());
  if (signal.aborted) stream.close();
  // The reader ends with the stream; its errors mean only that the peer is gone.
  void readRequests(hosts, reader, stream, attachment, log);
  return stream;
}

async function readRequests(
  hosts: Hosts,
  reader: AsyncIterator<AttachRequest>,
  stream: CommandStream,
  attachment: HostAttachment,
  log: Log,
): Promise<void> {
  const { hostId, instanceId } = attachment;
  const respond = async (request: AttachRequest): Promise<void> => {
    try {
      const message = await answer(hosts, hostId, request, log);
      stream.push(message, { answers: request.messageId });
      if (message.case === "detach") stream.finish();
    } catch (error) {
      // A bug that meets one answer ends one stream; the host attaches again and repeats what was not answered.
      log.error(
        { err: error, host_id: hostId, instance_id: instanceId },
        "an answer on an Attach stream could not be written; it is closed",
      );
      stream.close();
    }
  };
  try {
    for (;;) {
      const next = await reader.next();
      if (next.done === true || !stream.open) break;
      hosts.heard(hostId, instanceId);
      void respond(next.value);
    }
  } catch {
    // Read errors of a request stream are the ways a peer leaves; the calls go on without it.
  }
  stream.close();
}

/** The answer to one request; a refusal is an answer too, so that the stream goes on. */
async function answer(hosts: Hosts, hostId: string, { message }: AttachRequest, log: Log): Promise<AttachResponse["message"]> {
  try {
    switch (message.case) {
      case "heartbeat":
        sameHost(hostId, message.value.hostId);
        return {
          case: "heartbeat",
          value: create(HeartbeatResponseSchema, { ended: hosts.heartbeat(hostId, message.value.instanceId, message.value.heldCalls) }),
        };
      case "emitEvent":
        return { case: "emitEvent", value: create(EmitEventResponseSchema, { sequence: await hosts.emit(hostId, message.value) }) };
      case "reportOutcome": {
        const { disposition, standing } = await hosts.report(hostId, message.value);
        return { case: "reportOutcome", value: create(ReportOutcomeResponseSchema, { disposition, standingOutcome: standing }) };
      }
      case "detach":
        sameHost(hostId, message.value.hostId);
        hosts.detach(hostId, message.value.instanceId, message.value.generation, message.value.heldCalls);
        return { case: "detach", value: create(DetachResponseSchema) };
      case "attachment":
        throw invalidArgument(
          "message",
          "an attachment is the first message of its stream and no later one; open another stream to attach again",
        );
      case undefined:
        throw invalidArgument("message", "is missing; set one of heartbeat, emit_event, report_outcome, detach");
    }
  } catch (error) {
    const { rawMessage } = toConnectError(error, "brain.v1.HostService/Attach", undefined, log);
    const reason = isRefusal(error) ? error.reason : "internal";
    return { case: "refusal", value: create(RefusalSchema, { reason, message: rawMessage }) };
  }
}

function sameHost(attached: string, named: string): void {
  if (named !== attached)
    throw invalidArgument("host_id", `${quote(named)} is not ${attached}, the host of this stream; open a stream of its own`);
}

/** A host's token speaks for its host, the API token for every one. */
function speaksFor(principal: Principal): string | undefined {
  return principal.kind === "host" ? principal.hostId : undefined;
}
