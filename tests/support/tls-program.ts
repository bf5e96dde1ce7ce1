// Calls a Tool of its own over each route, and says what came of it.
import { Brain, type BrainOptions, hostEnv, isBrainError, tool } from "@aexhq/brain";
import { z } from "zod";

const { BRAIN_URL = "", BRAIN_TOKEN = "" } = process.env;

for (const hostRoute of ["attach", "watch", "sse", "auto"] satisfies BrainOptions["hostRoute"][]) {
  const brain = new Brain({ baseUrl: BRAIN_URL, token: BRAIN_TOKEN, hostRoute });
  const hello = tool({ name: "hello", description: "", input: z.object({}), run: () => `hello over ${hostRoute}` });
  try {
    const session = await brain.sessions.create({ tools: [hello({ env: hostEnv({ name: "app" }) })] });
    const ending = await session.callTool({ name: "hello", environment: "app", input: {} });
    console.log(`${ending.status} ${ending.status === "ok" ? ending.value : ending.message}`);
  } catch (error) {
    console.log(isBrainError(error) ? `${error.reason} ${error.message}` : String(error));
  }
  await brain.close();
}
