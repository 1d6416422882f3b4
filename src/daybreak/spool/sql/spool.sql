-- The spool: one row per job, in the order in which they were submitted.

-- name: create
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS job (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    spec BLOB NOT NULL,
    spooled_at INTEGER NOT NULL,
    sent_at INTEGER,
    refused TEXT
);
CREATE INDEX IF NOT EXISTS waiting ON job (n) WHERE refused IS NULL;
CREATE TABLE IF NOT EXISTS resource (name TEXT PRIMARY KEY, settings BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answered (id TEXT PRIMARY KEY, job TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;

-- name: put_job
INSERT INTO job (id, spec, spooled_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING

-- name: count_jobs
SELECT count(*) FROM job

-- name: is_waiting
SELECT EXISTS (SELECT 1 FROM job INDEXED BY waiting WHERE refused IS NULL)

-- name: first_waiting
SELECT n, id, spec, spooled_at, sent_at, refused FROM job INDEXED BY waiting WHERE refused IS NULL ORDER BY n LIMIT ?

-- name: find_job
SELECT n, id, spec, spooled_at, sent_at, refused FROM job WHERE id = ?

-- name: all_set_aside
SELECT n, id, spec, spooled_at, sent_at, refused FROM job WHERE refused IS NOT NULL ORDER BY n LIMIT ?

-- name: all_specs
SELECT spec FROM job

-- name: mark_sent
UPDATE job SET sent_at = ? WHERE n = ? AND sent_at IS NULL

-- name: mark_unsent
UPDATE job SET sent_at = NULL WHERE n = ?

-- name: delete_job
DELETE FROM job WHERE n = ?

-- name: set_aside
UPDATE job SET refused = ? WHERE n = ?

-- name: wait_again
UPDATE job SET refused = NULL, sent_at = NULL WHERE refused IS NOT NULL AND (?1 IS NULL OR id = ?1)

-- name: drop_job
DELETE FROM job WHERE id = ?

-- name: put_answer
INSERT INTO answered (id, job, at) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET job = excluded.job, at = excluded.at

-- name: find_answer
SELECT job FROM answered WHERE id = ?

-- name: trim_answers
DELETE FROM answered WHERE at < ? OR id IN (SELECT id FROM answered ORDER BY at DESC LIMIT -1 OFFSET ?)

-- name: put_resource
INSERT INTO resource (name, settings) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET settings = excluded.settings

-- name: all_resources
SELECT name, settings FROM resource

-- name: status
SELECT count(*) FILTER (WHERE refused IS NULL), min(spooled_at) FILTER (WHERE refused IS NULL), count(refused) FROM job

-- name: put_about
INSERT INTO about (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: add_about
INSERT INTO about (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING

-- name: delete_about
DELETE FROM about WHERE name = ?

-- name: all_about
SELECT name, value FROM about
