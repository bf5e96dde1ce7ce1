import type { Address } from "../connection.js";
import { type BrainError, isNetworkFailure, isTokenRefusal } from "../errors.js";
import { AttachRoute } from "./attach.js";
import type { HostRoute, HostRouteName } from "./route.js";
import { SseRoute } from "./sse.js";
import { WatchRoute } from "./watch.js";

/** Fastest first; what stands between may take only a later one. */
const ROUTES: readonly HostRouteName[] = ["attach", "watch", "sse"];

function createRoute(name: HostRouteName, address: Address): HostRoute {
  switch (name) {
    case "attach":
      return new AttachRoute(address);
    case "watch":
      return new WatchRoute(address);
    case "sse":
      return new SseRoute(address);
  }
}

/** Which route an instance takes. With "auto" it goes on to the next one while no route has worked yet. */
export class RouteChoice {
  readonly #address: Address;
  readonly #isAuto: boolean;
  readonly #givenUp = new Set<HostRouteName>();
  #hasWorked = false;
  #current: HostRoute;

  constructor(choice: HostRouteName | "auto", address: Address) {
    this.#address = address;
    this.#isAuto = choice === "auto";
    this.#current = createRoute(choice === "auto" ? "attach" : choice, address);
  }

  get current(): HostRoute {
    return this.#current;
  }

  /** A stream was accepted: this route works here, and later trouble is not the route's. */
  succeeded(): void {
    this.#hasWorked = true;
  }

  /** Goes on to the next route where the trouble may be the route's; says so in a line for the log, once for each route. */
  failed(trouble: BrainError): string | undefined {
    if (!this.#isAuto || this.#hasWorked || !mayBeTheRoute(trouble)) return undefined;
    const { name } = this.#current;
    const next = ROUTES[(ROUTES.indexOf(name) + 1) % ROUTES.length] ?? "attach";
    this.#current.close();
    this.#current = createRoute(next, this.#address);
    if (this.#givenUp.has(name)) return undefined;
    this.#givenUp.add(name);
    return `the host route "${name}" does not work here (${trouble.message}); trying "${next}"`;
  }

  close(): void {
    this.#current.close();
  }
}

/** Brain's own refusals and an absent server are the same on every route. */
function mayBeTheRoute(trouble: BrainError): boolean {
  if (isTokenRefusal(trouble)) return false;
  if (trouble.reason === "unimplemented") return true;
  return trouble.reason === "unavailable" && !isNetworkFailure(trouble);
}
