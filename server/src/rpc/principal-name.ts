import type { HandlerContext } from "@connectrpc/connect";
import { principalOf } from "./authorize.js";

/** Who asked, as records name it. */
export function principalName(context: Pick<HandlerContext, "values">): string {
  const principal = principalOf(context);
  return principal.kind === "host" ? `host:${principal.hostId}` : principal.kind;
}
