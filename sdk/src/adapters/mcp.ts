/** Brain and the Model Context Protocol: serve a session's Tools over it, and place Tools that come over it. */
export { type McpServerOptions, toMcpServer } from "./mcp-server.js";
export { declareMcpTools, type McpToolsOptions, mcpTools } from "./mcp-tools.js";
export type { EnvironmentChoice, EnvironmentPolicy, PolicyCall } from "./shown-tool.js";
