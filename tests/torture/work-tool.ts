import { z } from "zod";
import { type ToolContext, type ToolFactory, tool } from "../../sdk/src/tool.js";

const input = z.object({ call: z.string(), ms: z.number(), emits: z.number(), throws: z.boolean() });
export type Work = z.infer<typeof input>;

/** The Tool of every round; one definition for those who place it and those who run it. */
export function workTool(run: (work: Work, ctx: ToolContext) => Promise<string>): ToolFactory {
  return tool({ name: "work", description: "Does something that must not be done twice.", input, run }) as ToolFactory;
}
