// The brain command as user nobody, for what root may do everywhere. Everything is loaded before the rights are dropped,
// the native part too: nobody may be unable to read this tree.
import Database from "better-sqlite3";
import { runProgram } from "../../server/dist/cli/program.js";

new Database(":memory:").close();
if (process.getuid?.() === 0) {
  process.setgid(65_534);
  process.setuid(65_534);
}
await runProgram(process.argv);
