import { Refusal } from "../core/refusal.js";
import type { HttpRequest } from "./exchange.js";

/**
 * The JSON of a request body.
 * @throws Refusal `unsupported_media_type` unless it says `application/json`, `request_too_large` as soon as it is
 * over `maxBytes`, `invalid_argument` when it is no UTF-8 or no JSON or ends early.
 */
export async function readJsonBody(req: HttpRequest, maxBytes: number): Promise<unknown> {
  const type = req.headers["content-type"];
  const essence = type?.split(";", 1)[0]?.trim().toLowerCase();
  const encoding = req.headers["content-encoding"] ?? "identity";
  if (essence !== "application/json" || encoding !== "identity") {
    throw new Refusal(
      "unsupported_media_type",
      "the body must be plain JSON; send the header 'Content-Type: application/json' and no Content-Encoding",
    );
  }
  const tooLarge = (): Refusal =>
    new Refusal("request_too_large", `the body is over ${maxBytes} bytes; send less in one request`, { limit_bytes: String(maxBytes) });
  if (Number(req.headers["content-length"] ?? 0) > maxBytes) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  try {
    // Leaving the loop must not destroy the request: with HTTP/1.1 the answer would go with it.
    for await (const chunk of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>) {
      bytes += chunk.length;
      if (bytes > maxBytes) break;
      chunks.push(chunk);
    }
  } catch {
    throw new Refusal("invalid_argument", "the body ended before it was complete; send it again", { field: "body" });
  }
  if (bytes > maxBytes) throw tooLarge();
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks)));
  } catch {
    throw new Refusal("invalid_argument", "the body is no JSON in UTF-8; check its syntax", { field: "body" });
  }
}
