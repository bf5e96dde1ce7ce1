import Database from "better-sqlite3";
import { JournalFileError } from "./journal-file-error.js";
import type { Migration } from "./migrations/all.js";

/** `BRAN` in ASCII: what `PRAGMA application_id` says of a file that is a journal. */
export const APPLICATION_ID = 0x4252414e;

/**
 * Brings the schema to the newest version in one transaction; nothing when it is there already.
 * @throws JournalFileError when the file's schema is newer than the newest migration.
 */
export function migrate(db: Database.Database, file: string, migrations: readonly Migration[]): void {
  const version = db.pragma("user_version", { simple: true }) as number;
  const newest = migrations.at(-1)?.version ?? 0;
  if (version > newest) {
    throw new JournalFileError(
      file,
      `the journal file ${file} was written by a newer Brain (schema version ${version}, this one knows up to ` +
        `${newest}); start the newer Brain on it, or give this one another --data-dir`,
    );
  }
  if (version === newest) return;
  db.transaction(() => {
    for (const migration of migrations) {
      if (migration.version <= version) continue;
      db.exec(migration.sql);
      db.pragma(`user_version = ${migration.version}`);
    }
  }).immediate();
}

/** What of the newest schema the database lacks or has otherwise: the names, empty when it is sound. */
export function missingFromSchema(db: Database.Database, migrations: readonly Migration[]): string[] {
  const version = db.pragma("user_version", { simple: true }) as number;
  const sample = new Database(":memory:");
  try {
    for (const migration of migrations) if (migration.version <= version) sample.exec(migration.sql);
    const select = "SELECT type || ' ' || name AS name, sql FROM sqlite_schema WHERE sql IS NOT NULL";
    const found = new Map((db.prepare(select).all() as SchemaRow[]).map((row) => [row.name, row.sql]));
    const expected = sample.prepare(select).all() as SchemaRow[];
    return expected.filter((row) => found.get(row.name) !== row.sql).map((row) => row.name);
  } finally {
    sample.close();
  }
}

interface SchemaRow {
  readonly name: string;
  readonly sql: string;
}
