// A process that wants an outbox whenever it is told to, and says over its channel what came of it.
import { Outbox } from "../../sdk/src/outbox.js";

let outbox: Outbox | undefined;

async function obey({ order, path }: { order: "open" | "close"; path: string }): Promise<void> {
  if (order === "close") {
    await outbox?.close();
    outbox = undefined;
    process.send?.("closed");
    return;
  }
  try {
    outbox = await Outbox.open({ path, hostId: "a-host", log: () => undefined });
    process.send?.("opened");
  } catch (error) {
    process.send?.((error as { reason?: string }).reason ?? String(error));
  }
}

process.on("message", (message: Parameters<typeof obey>[0]) => void obey(message));
process.on("disconnect", () => process.exit());
process.send?.("ready");
