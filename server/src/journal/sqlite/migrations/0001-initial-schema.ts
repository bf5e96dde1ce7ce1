/**
 * The first schema.
 *
 * `seal` is created first so that it lies on page 2 of the file, where `seal.ts` can read it without SQLite.
 * `session` is a surrogate that is never used twice (AUTOINCREMENT): the rows of a deleted session may still be
 * waiting for their removal when the next session is created.
 * `records` and `calls` have rowids, so that rows go to the end of their table whatever session they belong to, and
 * only the narrow entries of their keys go to its place. Rows of this width in the tree of the key itself would make
 * every commit write twice as many pages: few fit in a page, its inner pages included, and inserting splits them.
 */
export const initialSchema = {
  version: 1,
  name: "0001-initial-schema",
  sql: `
CREATE TABLE seal (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  text TEXT NOT NULL
) STRICT;

CREATE TABLE sessions (
  session INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL UNIQUE,
  request_id TEXT UNIQUE,
  create_time INTEGER NOT NULL,
  labels TEXT NOT NULL,
  end_sequence INTEGER CHECK (end_sequence > 1)
) STRICT;
CREATE INDEX open_sessions ON sessions (session) WHERE end_sequence IS NULL;
CREATE TRIGGER session_ends_once BEFORE UPDATE OF end_sequence ON sessions WHEN OLD.end_sequence IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a session ends once'); END;

CREATE TABLE session_labels (
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  session INTEGER NOT NULL,
  PRIMARY KEY (name, value, session)
) STRICT, WITHOUT ROWID;

CREATE TABLE records (
  session INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  commit_time INTEGER NOT NULL,
  kind TEXT NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (session, sequence)
) STRICT;
CREATE TRIGGER records_have_no_gap BEFORE INSERT ON records
WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), 0) + 1 FROM records WHERE session = NEW.session)
BEGIN SELECT RAISE(ABORT, 'the sequences of a session have no gap'); END;
CREATE TRIGGER records_never_change BEFORE UPDATE ON records
BEGIN SELECT RAISE(ABORT, 'a record never changes'); END;

CREATE TABLE calls (
  session INTEGER NOT NULL,
  call_sequence INTEGER NOT NULL,
  call_id TEXT NOT NULL,
  end_sequence INTEGER CHECK (end_sequence > call_sequence),
  late_sequence INTEGER CHECK (late_sequence IS NULL OR (end_sequence IS NOT NULL AND late_sequence > end_sequence)),
  PRIMARY KEY (session, call_sequence),
  UNIQUE (session, call_id)
) STRICT;
CREATE INDEX open_calls ON calls (session, call_sequence) WHERE end_sequence IS NULL;
CREATE TRIGGER call_ends_once BEFORE UPDATE OF end_sequence ON calls WHEN OLD.end_sequence IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a call ends once'); END;
CREATE TRIGGER call_has_one_late_outcome BEFORE UPDATE OF late_sequence ON calls WHEN OLD.late_sequence IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a call has at most one late outcome'); END;

CREATE TABLE emits (
  session INTEGER NOT NULL,
  call_sequence INTEGER NOT NULL,
  emit_id TEXT NOT NULL,
  sequence INTEGER NOT NULL CHECK (sequence > call_sequence),
  PRIMARY KEY (session, call_sequence, emit_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE purges (
  session INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE hosts (
  host INTEGER PRIMARY KEY AUTOINCREMENT,
  host_id TEXT NOT NULL UNIQUE,
  display_name TEXT NOT NULL,
  create_time INTEGER NOT NULL,
  token_sha256 BLOB NOT NULL UNIQUE CHECK (length(token_sha256) = 32),
  request_id TEXT UNIQUE
) STRICT;
`,
};
