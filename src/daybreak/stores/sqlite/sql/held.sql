-- Jobs that are blocked or suspended.

-- name: delete_held
DELETE FROM held WHERE seq = ?

-- name: insert_held
INSERT INTO held (seq, state, cause, lane, band, ord, clock, due, attempt, fence, n, carry, history, batch)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
