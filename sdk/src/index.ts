/** Declare Tools, place them in Environments, and call them through Brain. */
export { Brain, type BrainOptions } from "./client.js";
export { type Environment, type HostEnvironment, hostEnv } from "./environments.js";
export { BrainError, isBrainError } from "./errors.js";
export type { HostCredentials } from "./host.js";
export { type Failed, type FailureInput, type Outcome, OutcomeError, outcome, unwrap } from "./outcome.js";
export { formatRecord, type JournalRecord, type JournalRecords } from "./records.js";
export { type InferInput, type InferOutput, jsonSchema, type StandardSchema, type Violation } from "./schema.js";
export type {
  CallToolOptions,
  CreateSessionOptions,
  ListSessionsOptions,
  Session,
  SessionPage,
  Sessions,
  ToolCall,
  ToolCallName,
} from "./sessions.js";
export {
  type FunctionDeclaration,
  type FunctionPlacement,
  type ImplementationDeclaration,
  type Placement,
  type ToolContext,
  type ToolDeclaration,
  type ToolDefinition,
  type ToolFactory,
  tool,
} from "./tool.js";
