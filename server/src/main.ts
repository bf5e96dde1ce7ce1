import { createProgram } from "./cli/program.js";

try {
  await createProgram().parseAsync(process.argv);
} catch (error) {
  // What stops a start is said in one plain line; the stack is for bugs.
  process.stderr.write(`brain: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
