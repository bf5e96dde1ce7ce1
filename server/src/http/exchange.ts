import type { IncomingMessage, ServerResponse } from "node:http";

/**
 * A request and its response, whichever protocol they came by. HTTP/2 exchanges arrive through Node's
 * compatibility classes, which have the same shape; the one difference that matters is that `:authority`
 * stands where `host` does, and that there is no `Connection` header to set.
 */
export type HttpRequest = IncomingMessage;
export type HttpResponse = ServerResponse;
export type HttpHandler = (req: HttpRequest, res: HttpResponse) => void;

/** The path of a request without its query; never throws, whatever the request line says. */
export function pathOf(req: HttpRequest): string {
  return (req.url ?? "").split("?", 1)[0] ?? "";
}
