/**
 * The tools of an MCP server as Tools of a host Environment.
 *
 * 1. A call of the Tool is one `tools/call`, sent once. Its only deadline is the call's own.
 * 2. Brain is told `unknown` only where the MCP server may have run the tool and its answer is lost. What the server
 *    refused, or never got, is an `error`.
 */
import type { Client } from "@modelcontextprotocol/sdk/client/index.js";
import {
  type CallToolResult,
  CallToolResultSchema,
  ErrorCode,
  ListToolsResultSchema,
  type Tool as McpTool,
} from "@modelcontextprotocol/sdk/types.js";
import { checkName, type HostEnvironment } from "../environments.js";
import { BrainError, invalidArgument, thrownMessage } from "../errors.js";
import { DETAILS_MAX_BYTES, toJsonText } from "../json.js";
import { type Outcome, outcome } from "../outcome.js";
import { jsonSchema } from "../schema.js";
import { type Placement, type ToolFactory, tool } from "../tool.js";
import { OUTCOME_META } from "./mcp-meta.js";

/** As long as a timer can be, 24 days: MCP's own deadline is to stay out of the way of the call's. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export interface McpToolsOptions {
  /**
   * The Tool's name for a tool's MCP name: a map, or a function of the MCP name. A tool that the map does not name keeps
   * its name, which is refused where it is not 1 to 64 letters, digits, "_" or "-".
   */
  names?: Readonly<Record<string, string>> | ((mcpName: string) => string);
  /** The MCP names of the tools to take, in their order; all of them without it. */
  only?: readonly string[];
}

/**
 * Declares the tools of a connected MCP server as Tools and places them in a host Environment of this process, which
 * forwards their calls. The client stays the caller's: keep it connected, and close it after the Brain object. What the
 * server lists later is not heard of, since a session's catalogue never changes.
 *
 * The value of a call is the tool's structured content where it has some; else its text, if it answered one text; else
 * the MCP content blocks as JSON (images, resources, several texts), or null if there are none. What the tool reports as
 * an error is an `error` `tool_error` with its text.
 *
 * @throws BrainError `invalid_argument` for names that cannot be Tools, that meet, or that the server does not have.
 * @example
 * const session = await brain.sessions.create({ tools: await mcpTools(client, { env: hostEnv({ name: "files" }) }) });
 */
export async function mcpTools(client: Client, options: McpToolsOptions & { env: HostEnvironment }): Promise<Placement[]> {
  const { env, ...rest } = options;
  return (await declareMcpTools(client, rest)).map((factory) => factory({ env }));
}

/**
 * Like `mcpTools`, without placing them: for `brain.serve`, or for several Environments.
 *
 * @throws BrainError as `mcpTools` does.
 * @example
 * await brain.serve({ environment: "files", tools: await declareMcpTools(client) });
 */
export async function declareMcpTools(client: Client, options: McpToolsOptions = {}): Promise<ToolFactory[]> {
  const named = new Map<string, string>();
  return chosen(await listed(client), options).map((mcpTool) => {
    const name = toolName(mcpTool.name, options.names);
    const other = named.get(name);
    if (other !== undefined) {
      throw invalidArgument(
        `The MCP tools "${other}" and "${mcpTool.name}" would both be Tool "${name}"; give one another name with names`,
      );
    }
    named.set(name, mcpTool.name);
    return declared(client, name, mcpTool);
  });
}

async function listed(client: Client): Promise<Map<string, McpTool>> {
  if (client.transport === undefined) throw invalidArgument("The MCP client is not connected; connect it before its tools are placed");
  if (client.getServerCapabilities()?.tools === undefined) throw invalidArgument("The MCP server has no tools; check which one it is");
  const found = new Map<string, McpTool>();
  const cursors = new Set<string>();
  let cursor: string | undefined;
  do {
    // Not `client.listTools`, which compiles output schemas and refuses the whole list over one. Brain judges them.
    const params = cursor === undefined ? {} : { cursor };
    const { tools, nextCursor } = await client.request({ method: "tools/list", params }, ListToolsResultSchema);
    for (const mcpTool of tools) {
      if (found.has(mcpTool.name))
        throw invalidArgument(`The MCP server lists the tool "${mcpTool.name}" twice; which one is meant cannot be told`);
      found.set(mcpTool.name, mcpTool);
    }
    if (nextCursor !== undefined && cursors.has(nextCursor)) {
      throw new BrainError("unavailable", `The MCP server's list of tools does not end: it gave the cursor "${nextCursor}" twice`);
    }
    if (nextCursor !== undefined) cursors.add(nextCursor);
    cursor = nextCursor;
  } while (cursor !== undefined);
  return found;
}

function chosen(found: ReadonlyMap<string, McpTool>, { names, only }: McpToolsOptions): McpTool[] {
  const mapped = typeof names === "object" ? Object.keys(names) : [];
  const missing = [...(only ?? []), ...mapped].find((name) => !found.has(name));
  if (missing !== undefined) {
    const there = [...found.keys()].map((name) => `"${name}"`).join(", ");
    throw invalidArgument(`The MCP server has no tool "${missing}"; it has ${there || "none"}`);
  }
  const taken = new Set(only ?? found.keys());
  return [...taken].flatMap((name) => found.get(name) ?? []);
}

function toolName(mcpName: string, names: McpToolsOptions["names"]): string {
  const map = typeof names === "object" && Object.hasOwn(names, mcpName) ? names[mcpName] : undefined;
  const name = typeof names === "function" ? names(mcpName) : (map ?? mcpName);
  try {
    checkName("Tool", name);
  } catch (error) {
    throw invalidArgument(`MCP tool ${JSON.stringify(mcpName)}: ${thrownMessage(error)} with names: { ${JSON.stringify(mcpName)}: "..." }`);
  }
  return name;
}

function declared(client: Client, name: string, mcpTool: McpTool): ToolFactory {
  if (mcpTool.execution?.taskSupport === "required") {
    throw invalidArgument(`MCP tool "${mcpTool.name}" runs as an MCP task only, which a call cannot be; leave it out with only: [...]`);
  }
  const { inputSchema, outputSchema } = mcpTool;
  return tool({
    name,
    description: mcpTool.description ?? mcpTool.title ?? "",
    input: jsonSchema<Record<string, unknown>>(inputSchema),
    ...(outputSchema === undefined ? {} : { output: jsonSchema(outputSchema) }),
    run: (input, { signal }) => forwarded(client, mcpTool, input, signal),
  });
}

async function forwarded(client: Client, mcpTool: McpTool, input: Record<string, unknown>, signal: AbortSignal): Promise<unknown> {
  const { transport } = client;
  if (transport === undefined) return unreachable(mcpTool, "the MCP client is not connected");
  let answer: CallToolResult;
  try {
    // Not `client.callTool`, which turns an output that breaks its schema into an exception. Brain says `invalid_output`.
    answer = await client.request({ method: "tools/call", params: { name: mcpTool.name, arguments: input } }, CallToolResultSchema, {
      signal,
      timeout: LONGEST_TIMER_MS,
    });
  } catch (error) {
    signal.throwIfAborted();
    return unanswered(client, transport, mcpTool, error);
  }
  return answer.isError === true ? failure(answer) : value(answer, mcpTool);
}

/** What it means that a request has no result; throws what is an ordinary `tool_error`. */
function unanswered(client: Client, transport: Client["transport"], mcpTool: McpTool, error: unknown): Outcome {
  const message = thrownMessage(error);
  if (Array.isArray((error as { issues?: unknown }).issues)) {
    return outcome.error({ code: "invalid_output", message: `MCP tool "${mcpTool.name}" answered with what is no MCP result: ${message}` });
  }
  const { code } = error as { code?: unknown };
  // By name and not by class, of which there may be two.
  if ((error as { name?: unknown }).name === "McpError") {
    const isClosed = code === ErrorCode.ConnectionClosed && client.transport !== transport;
    // Any other code is the server's own answer.
    if (isClosed || code === ErrorCode.RequestTimeout) return lost(mcpTool, message);
    throw error;
  }
  if (typeof code === "number" && code >= 400 && code < 500) throw error;
  return wasNotSent(error) ? unreachable(mcpTool, message) : lost(mcpTool, message);
}

const NOT_SENT_CODES: ReadonlySet<unknown> = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"]);

function wasNotSent(error: unknown): boolean {
  const seen = new Set<unknown>();
  for (let at = error; at instanceof Error && !seen.has(at); at = at.cause) {
    seen.add(at);
    if (NOT_SENT_CODES.has((at as { code?: unknown }).code)) return true;
  }
  // What transports of the MCP SDK say that have nobody to write to.
  return thrownMessage(error) === "Not connected";
}

function unreachable(mcpTool: McpTool, why: string): Outcome {
  const message = `MCP tool "${mcpTool.name}" did not run, its server could not be reached: ${why}`;
  return outcome.error({ code: "mcp_server_unreachable", message, retryable: true });
}

function lost(mcpTool: McpTool, why: string): Outcome {
  const message = `MCP tool "${mcpTool.name}" may have run, its answer is lost: ${why}`;
  return outcome.unknown({ code: "mcp_answer_lost", message });
}

function value({ content, structuredContent }: CallToolResult, mcpTool: McpTool): unknown {
  if (structuredContent !== undefined) return structuredContent;
  if (mcpTool.outputSchema !== undefined) {
    const message = `MCP tool "${mcpTool.name}" declares an output schema and answered without structured content`;
    return outcome.error({ code: "invalid_output", message });
  }
  const [first, ...others] = content;
  if (first === undefined) return null;
  return first.type === "text" && others.length === 0 ? first.text : content;
}

function failure({ content, structuredContent, _meta }: CallToolResult): Outcome {
  const recorded = failedOutcome(_meta?.[OUTCOME_META]);
  if (recorded !== undefined) return recorded;
  const texts = content.flatMap((block) => (block.type === "text" && block.text !== "" ? [block.text] : []));
  const message = texts.length === 0 ? "the MCP tool reported an error without a text" : texts.join("\n");
  const fits = structuredContent !== undefined && toJsonText(structuredContent, DETAILS_MAX_BYTES).ok;
  return outcome.error({ code: "tool_error", message, ...(fits ? { details: structuredContent } : {}) });
}

/** The ending of a call in another Brain that serves its session over MCP. */
function failedOutcome(claimed: unknown): Outcome | undefined {
  if (typeof claimed !== "object" || claimed === null) return undefined;
  const { status, code, message, retryable, details } = claimed as Readonly<Record<string, unknown>>;
  if (status !== "error" && status !== "timeout" && status !== "cancelled" && status !== "unknown") return undefined;
  if (typeof code !== "string" || code === "" || code.length > 128 || typeof message !== "string") return undefined;
  return outcome[status]({ code, message, retryable: retryable === true, ...(details === undefined ? {} : { details }) });
}
