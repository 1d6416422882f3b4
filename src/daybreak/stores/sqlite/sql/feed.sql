-- The event feed.

-- name: empty_feed
-- The newest row stays, without its events, so that a pos is never used twice.
UPDATE feed SET lines = x'' WHERE pos <= ?

-- name: feed_from
SELECT pos, lines FROM feed WHERE pos >= ? ORDER BY pos

-- name: first_pos
SELECT min(pos) FROM feed WHERE length(lines) > 0

-- name: insert_feed
INSERT INTO feed (pos, at, lines) VALUES (?, ?, ?)

-- name: last_pos
SELECT coalesce(max(pos), 0) FROM feed

-- name: oldest_feed
SELECT pos, at, lines FROM feed WHERE length(lines) > 0 ORDER BY pos LIMIT ?

-- name: purge_feed
DELETE FROM feed WHERE pos <= ? AND pos < (SELECT max(pos) FROM feed)
