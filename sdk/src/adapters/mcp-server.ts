import { randomUUID } from "node:crypto";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import {
  CallToolRequestSchema,
  type CallToolResult,
  ErrorCode,
  ListToolsRequestSchema,
  McpError,
  type Tool,
} from "@modelcontextprotocol/sdk/types.js";
import { isBrainError } from "../errors.js";
import type { Outcome } from "../outcome.js";
import type { Session } from "../sessions.js";
import { CALL_ID_META, OUTCOME_META } from "./mcp-meta.js";
import { type EnvironmentChoice, type ShownTool, shownTools } from "./shown-tool.js";
import { isSchemaObject, type SchemaObject } from "./wrapped-schema.js";

/** What MCP takes a schema to be of that names no dialect. */
const MCP_DIALECT = "https://json-schema.org/draft/2020-12/schema";

export interface McpServerOptions {
  /** Who says where a Tool runs that has several placements. Without it such a Tool is refused. */
  environment?: EnvironmentChoice;
  /** How the server presents itself to its client. */
  serverInfo?: { name: string; version: string };
  /** What the client may tell its model about these Tools. */
  instructions?: string;
}

/**
 * An MCP server of a session's Tools, to be connected to one transport; make one for each client. A failed call is a
 * result with `isError`; a refused request is an MCP error that carries Brain's reason. A client that cancels a request
 * cancels the call; one that goes away does not, and the call goes on.
 *
 * Each request is a call of its own, unless the client names it in `_meta["brain/call_id"]`: it may then ask again
 * after a lost connection, and gets the ending of that call. Every result says its call id in the same place.
 *
 * @throws BrainError `invalid_argument` where a Tool has several placements and `environment` does not say which, or
 * names what the session does not have.
 * @example
 * const server = await toMcpServer(session);
 * await server.connect(new StdioServerTransport());
 */
export async function toMcpServer(session: Session, options: McpServerOptions = {}): Promise<Server> {
  const { environment, serverInfo = { name: "brain", version: "1" }, instructions } = options;
  const tools = new Map((await shownTools(session, environment)).map((tool) => [tool.name, tool]));
  const listed = [...tools.values()].map(mcpTool);
  // The low-level server, since the other one wants schemas of a library and not the ones a session has.
  const server = new Server(serverInfo, { capabilities: { tools: {} }, ...(instructions === undefined ? {} : { instructions }) });
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: listed }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { signal }) => {
    const tool = tools.get(params.name);
    if (tool === undefined) {
      throw new McpError(ErrorCode.InvalidParams, `There is no Tool ${JSON.stringify(params.name)} here; tools/list says what there is`);
    }
    const callId = params._meta?.[CALL_ID_META];
    return await called(tool, params.arguments ?? {}, typeof callId === "string" ? callId : randomUUID(), cancellation(server, signal));
  });
  return server;
}

/**
 * Aborted when the client cancels. The request's own signal is aborted by a closed connection as well, which cancels
 * nothing in Brain; only once the server has let go of the transport can the two be told apart.
 */
function cancellation(server: Server, signal: AbortSignal): AbortSignal {
  const { transport } = server;
  const controller = new AbortController();
  const abort = (): void =>
    queueMicrotask(() => {
      if (server.transport === transport) controller.abort(signal.reason);
    });
  if (signal.aborted) abort();
  else signal.addEventListener("abort", abort, { once: true });
  return controller.signal;
}

async function called(tool: ShownTool, input: unknown, callId: string, signal: AbortSignal): Promise<CallToolResult> {
  try {
    return callToolResult(await tool.call(input, callId, signal), callId);
  } catch (error) {
    if (!isBrainError(error)) throw error;
    const { reason, message, metadata } = error;
    const code = reason === "invalid_argument" ? ErrorCode.InvalidParams : ErrorCode.InternalError;
    throw new McpError(code, `${reason}: ${message}`, { reason, metadata: { ...metadata } });
  }
}

function callToolResult(ending: Outcome, callId: string): CallToolResult {
  const named = { [CALL_ID_META]: callId };
  if (ending.status !== "ok") {
    // Not as structuredContent, which clients hold against the Tool's output schema even in a failure.
    const content = [{ type: "text" as const, text: JSON.stringify(ending) }];
    return { content, isError: true, _meta: { ...named, [OUTCOME_META]: { ...ending } } };
  }
  const { value } = ending;
  return {
    content: [{ type: "text", text: typeof value === "string" ? value : JSON.stringify(value) }],
    ...(isSchemaObject(value) ? { structuredContent: { ...value } } : {}),
    _meta: named,
  };
}

function mcpTool({ name, description, inputSchema, outputSchema }: ShownTool): Tool {
  return {
    name,
    description,
    inputSchema: mcpSchema(inputSchema),
    ...(isSchemaObject(outputSchema) && outputSchema["type"] === "object" ? { outputSchema: mcpSchema(outputSchema) } : {}),
  };
}

/**
 * The same schema in the words that MCP clients take: some know no dialect by name, not even the one MCP speaks, and
 * some take no boolean for the schema of a property. Either would keep them from listing any Tool.
 */
function mcpSchema(schema: SchemaObject): Tool["inputSchema"] {
  const { $schema, properties, ...rest } = schema;
  return {
    ...($schema === undefined || $schema === MCP_DIALECT ? {} : { $schema }),
    ...rest,
    type: "object",
    ...(isSchemaObject(properties) ? { properties: Object.fromEntries(Object.entries(properties).map(withoutBoolean)) } : {}),
  };
}

function withoutBoolean([name, schema]: [string, unknown]): [string, object] {
  return [name, typeof schema === "boolean" ? (schema ? {} : { not: {} }) : (schema as object)];
}
