import { readFileSync } from "node:fs";

/** Of this package, as `Attached` and the CLI say it. */
export const VERSION: string = String(JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")).version);
