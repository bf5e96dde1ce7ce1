import { copyFile, mkdir, mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/**
 * The programs of a round, each made into one file of the sources as they are: a process then starts in a seventh of the
 * time, which is what most of a round's processor time would go into.
 */
export class BuiltPrograms {
  readonly #directory: string;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  static async build(): Promise<BuiltPrograms> {
    // Beside the packages, so that what is not built in is found from there.
    const cache = join(ROOT, "node_modules", ".cache");
    await mkdir(cache, { recursive: true });
    const directory = await mkdtemp(join(cache, "brain-torture-"));
    await copyFile(join(ROOT, "server/package.json"), join(directory, "package.json"));
    await build({
      absWorkingDir: ROOT,
      entryPoints: {
        host: "tests/torture/host-program.ts",
        server: "tests/torture/server-program.ts",
        // The server starts its threads from the files beside it.
        thread: "server/src/validation/thread.ts",
        "writer-thread": "server/src/journal/sqlite/writer-thread.ts",
      },
      outdir: join(directory, "dist"),
      bundle: true,
      platform: "node",
      format: "esm",
      target: "node20",
      external: ["better-sqlite3"],
      // Some packages inside are CommonJS.
      banner: { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' },
      logLevel: "error",
    });
    return new BuiltPrograms(directory);
  }

  path(kind: "server" | "host"): string {
    return join(this.#directory, "dist", `${kind}.js`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true });
  }
}
