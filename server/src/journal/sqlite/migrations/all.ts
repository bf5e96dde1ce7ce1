import { initialSchema } from "./0001-initial-schema.js";

/** One step of the schema. A migration that has been released is never edited; a change is a new one. */
export interface Migration {
  readonly version: number;
  readonly name: string;
  readonly sql: string;
}

/** All migrations, in order; `version` counts 1, 2, 3... and is what `PRAGMA user_version` holds afterwards. */
export const MIGRATIONS: readonly Migration[] = [initialSchema];
