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
import type { Address } from "../connection.js";
import { brainErrorFrom } from "../errors.js";
import type { CommandStream, HostRoute } from "./route.js";
import { UnaryAnswers } from "./unary.js";

/** `WatchCommands` with unary answers: works over HTTP/1.1, where a bidirectional stream does not. */
export class WatchRoute implements HostRoute {
  readonly name = "watch";
  readonly #answers: UnaryAnswers;
  readonly #baseUrl: string;

  constructor(address: Address) {
    this.#baseUrl = address.baseUrl;
    this.#answers = new UnaryAnswers(address, "binary");
  }

  open(attachment: HostAttachment): CommandStream {
    const controller = new AbortController();
    const messages = this.#answers.client.watchCommands({ attachment }, { signal: controller.signal });
    let dropped = false;
    return {
      read: async (take: (command: Command) => void): Promise<void> => {
        try {
          for await (const { command } of messages) {
            if (dropped) return;
            if (command !== undefined) take(command);
          }
        } catch (thrown) {
          if (!dropped) throw brainErrorFrom(thrown, this.#baseUrl);
        }
      },
      drop: () => {
        dropped = true;
        controller.abort();
      },
    };
  }

  hangUpAfter(ms: number): void {
    this.#answers.hangUpAfter(ms);
  }

  heartbeat(request: HeartbeatRequest): Promise<HeartbeatResponse> {
    return this.#answers.heartbeat(request);
  }

  emitEvent(request: EmitEventRequest): Promise<EmitEventResponse> {
    return this.#answers.emitEvent(request);
  }

  reportOutcome(request: ReportOutcomeRequest): Promise<ReportOutcomeResponse> {
    return this.#answers.reportOutcome(request);
  }

  detach(request: DetachRequest): Promise<void> {
    return this.#answers.detach(request);
  }

  close(): void {
    this.#answers.close();
  }
}
