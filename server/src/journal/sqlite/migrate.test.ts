import Database from "better-sqlite3";
import { afterEach, beforeEach, expect, test } from "vitest";
import { temporaryDirectory } from "../../../../tests/support/journal-fixture.js";
import { migrate, missingFromSchema } from "./migrate.js";
import { MIGRATIONS } from "./migrations/all.js";

let directory: { path: string; remove(): void };
let db: Database.Database;
beforeEach(() => {
  directory = temporaryDirectory();
  db = new Database(`${directory.path}/journal.sqlite3`);
});
afterEach(() => {
  db.close();
  directory.remove();
});
const version = (): unknown => db.pragma("user_version", { simple: true });
const newest = MIGRATIONS.length;
const next = { version: newest + 1, name: "next", sql: "CREATE TABLE added (x TEXT) STRICT; INSERT INTO added VALUES ('kept')" };

test("migrations are numbered without gaps from 1", () => {
  expect(MIGRATIONS.map((migration) => migration.version)).toEqual(MIGRATIONS.map((_, index) => index + 1));
  for (const migration of MIGRATIONS) expect(migration.name).toMatch(new RegExp(`^${String(migration.version).padStart(4, "0")}-`));
});

test("an empty database is brought to the newest version, once", () => {
  migrate(db, "file", MIGRATIONS);
  migrate(db, "file", MIGRATIONS);
  expect(version()).toBe(newest);
  expect(missingFromSchema(db, MIGRATIONS)).toEqual([]);
});

test("the seal lies on the second page, where it is found without SQLite", () => {
  migrate(db, "file", MIGRATIONS);
  expect(db.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'seal'").pluck().get()).toBe(2);
});

test("an older database gets only what it lacks and keeps its rows", () => {
  migrate(db, "file", MIGRATIONS);
  db.exec("INSERT INTO purges VALUES (7)");
  migrate(db, "file", [...MIGRATIONS, next]);
  expect([version(), db.prepare("SELECT x FROM added").pluck().get(), db.prepare("SELECT session FROM purges").pluck().get()]).toEqual([
    newest + 1,
    "kept",
    7,
  ]);
});

test("a migration that fails leaves the database as it was, earlier steps of the same start included", () => {
  migrate(db, "file", MIGRATIONS);
  const broken = { version: newest + 2, name: "broken", sql: "CREATE TABLE half (x); CREATE TABLE purges (x)" };
  expect(() => migrate(db, "file", [...MIGRATIONS, next, broken])).toThrow("table purges already exists");
  expect(version()).toBe(newest);
  expect(db.prepare("SELECT count(*) FROM sqlite_schema WHERE name IN ('added', 'half')").pluck().get()).toBe(0);
});

test("a newer database is refused, naming the file and both versions", () => {
  db.pragma(`user_version = ${newest + 3}`);
  expect(() => migrate(db, "/x/journal.sqlite3", MIGRATIONS)).toThrow(
    `the journal file /x/journal.sqlite3 was written by a newer Brain (schema version ${newest + 3}, this one knows up to ${newest})`,
  );
});
