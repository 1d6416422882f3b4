-- A job's immutable part is a row of `job`. Its state is which of the small tables (ready, delayed, held, lease, done)
-- holds its seq.
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- One lane for each queue, task and version: a claim opens only the lanes of tasks its worker knows.
CREATE TABLE lane (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    version INTEGER NOT NULL,
    UNIQUE (queue, task, version)
);

-- band, ord and priority change only when a person re-ranks the job; expires is cleared at its first start.
CREATE TABLE job (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    lane INTEGER NOT NULL,
    band INTEGER NOT NULL,
    ord INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    asked INTEGER NOT NULL,
    created INTEGER NOT NULL,
    arrived INTEGER NOT NULL,
    expires INTEGER,
    by TEXT NOT NULL,
    run TEXT,
    owner TEXT,
    key TEXT,
    uniq TEXT,
    options BLOB,
    extra BLOB,
    args BLOB NOT NULL
);
CREATE UNIQUE INDEX job_id ON job (id);
CREATE INDEX job_lane ON job (lane);
CREATE INDEX job_run ON job (run) WHERE run IS NOT NULL;
CREATE INDEX job_owner ON job (owner) WHERE owner IS NOT NULL;
CREATE INDEX job_expires ON job (expires) WHERE expires IS NOT NULL;

-- `batch` is the batch key of a job, here and in `held`: a batch call finds its jobs by it.
CREATE TABLE ready (
    lane INTEGER NOT NULL,
    band INTEGER NOT NULL,
    ord INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    n INTEGER NOT NULL,
    carry BLOB,
    history BLOB,
    batch TEXT,
    PRIMARY KEY (lane, band, ord, seq)
) WITHOUT ROWID;
CREATE INDEX ready_batch ON ready (lane, batch, band, ord, seq) WHERE batch IS NOT NULL;

-- clock 0: due by steady time (delays, retries); 1: due by wall time (run_at).
CREATE TABLE delayed (
    seq INTEGER PRIMARY KEY,
    clock INTEGER NOT NULL,
    due INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    n INTEGER NOT NULL,
    carry BLOB,
    history BLOB
);
CREATE INDEX delayed_due ON delayed (clock, due);

-- Suspended and blocked jobs; `cause` is what a blocked job waits for. The index lists the waiters of a cause in rank order
-- within each lane. `batch` is set only while a batch call may take the job along: while it is blocked on a resource.
CREATE TABLE held (
    seq INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    cause TEXT,
    clock INTEGER,
    due INTEGER,
    attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    n INTEGER NOT NULL,
    carry BLOB,
    history BLOB,
    lane INTEGER NOT NULL,
    band INTEGER NOT NULL,
    ord INTEGER NOT NULL,
    batch TEXT
);
CREATE INDEX held_batch ON held (lane, batch, band, ord, seq) WHERE batch IS NOT NULL;
CREATE INDEX held_cause ON held (cause, lane, band, ord, seq) WHERE cause IS NOT NULL;
CREATE INDEX held_lane ON held (lane, band, ord, seq) WHERE cause IS NOT NULL;

-- `alone`: the holder runs the job where nothing else could be to blame for its death. `needs` are the job's resources.
-- `ahead`: claimed ahead of time; the holder has not reported yet that the work began. `batch_group`: the seq of the head of
-- the batch call that the job is in; `elements`: of a head, how many jobs the call has.
CREATE TABLE lease (
    seq INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    uniq TEXT,
    attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    n INTEGER NOT NULL,
    worker TEXT NOT NULL,
    until INTEGER NOT NULL,
    term INTEGER NOT NULL,
    started INTEGER NOT NULL,
    call TEXT,
    reaped INTEGER NOT NULL DEFAULT 0,
    suspending INTEGER NOT NULL DEFAULT 0,
    cancelling TEXT,
    carry BLOB,
    history BLOB,
    alone INTEGER NOT NULL DEFAULT 0,
    needs BLOB,
    ahead INTEGER NOT NULL DEFAULT 0,
    batch_group INTEGER,
    elements INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX lease_batch_group ON lease (batch_group) WHERE batch_group IS NOT NULL;
CREATE INDEX lease_until ON lease (until);

-- `entry`: the row of `flight` whose result the job has; its own `result` is NULL then.
CREATE TABLE done (
    seq INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    reason TEXT,
    attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    n INTEGER NOT NULL,
    started INTEGER,
    finished INTEGER NOT NULL,
    purge_at INTEGER,
    result BLOB,
    carry BLOB,
    history BLOB,
    entry INTEGER
);
CREATE INDEX done_purge ON done (purge_at) WHERE purge_at IS NOT NULL;
CREATE INDEX done_unhappy ON done (state) WHERE state <> 'completed';
CREATE INDEX done_reason ON done (reason) WHERE reason IS NOT NULL;

-- A flight is all jobs that compute the same. As long as its result is not known, it has a leader, which computes it.
-- `flight` is NULL once the result was dropped from the cache; the row lives until no job has its result (`refs`).
-- `landing`: some of its followers are still to be looked after.
CREATE TABLE flight (
    number INTEGER PRIMARY KEY,
    flight TEXT,
    task TEXT NOT NULL,
    version INTEGER NOT NULL,
    created INTEGER NOT NULL,
    used INTEGER NOT NULL,
    leader INTEGER,
    landing INTEGER NOT NULL,
    is_known INTEGER NOT NULL,
    job TEXT NOT NULL,
    parts TEXT NOT NULL,
    size INTEGER NOT NULL,
    ran INTEGER NOT NULL,
    until INTEGER,
    hits INTEGER NOT NULL,
    refs INTEGER NOT NULL
);
CREATE UNIQUE INDEX flight_flight ON flight (flight) WHERE flight IS NOT NULL;
CREATE INDEX flight_used ON flight (used, number) WHERE flight IS NOT NULL AND is_known;
CREATE INDEX flight_task ON flight (task, used, number) WHERE flight IS NOT NULL AND is_known;
CREATE INDEX flight_until ON flight (until, number) WHERE flight IS NOT NULL AND until IS NOT NULL;
CREATE INDEX flight_landing ON flight (number) WHERE landing;

-- The result of a flight: beside it, because a flight is written with every job that uses the result.
CREATE TABLE result (number INTEGER PRIMARY KEY, result BLOB);

-- How many results a task has in the cache, and how many bytes they are.
CREATE TABLE room (task TEXT PRIMARY KEY, entries INTEGER NOT NULL, size INTEGER NOT NULL) WITHOUT ROWID;

-- An idempotency key outlives its job. Once a purge has deleted the job, submits under the key are refused until `dropped`;
-- then the key is free. `at` is the time of the submit under the key, where that is not the time of the job's own submit.
CREATE TABLE idem (
    key TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    id TEXT NOT NULL,
    dropped INTEGER,
    at INTEGER
) WITHOUT ROWID;
CREATE INDEX idem_id ON idem (id);
CREATE INDEX idem_dropped ON idem (dropped) WHERE dropped IS NOT NULL;
CREATE TABLE uniq (name TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;

-- How many jobs of a lane and priority are in each state. The totals of a lane and priority are one more row, so that a
-- commit writes no other page for them: its state is 'totals', its n is 0, and `totals` is packed as {what: [n, took]}.
CREATE TABLE tally (
    lane INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL,
    n INTEGER NOT NULL,
    totals BLOB,
    PRIMARY KEY (lane, priority, state)
) WITHOUT ROWID;

-- All events of one transaction are one row, a JSON object a line; its pos is the order of commits.
CREATE TABLE feed (pos INTEGER PRIMARY KEY, at INTEGER NOT NULL, lines BLOB NOT NULL);

CREATE TABLE record (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- Resources: how much of each is in use, and when and for whom its waiters are looked at next (core/resource_gauge.py).
CREATE TABLE gauge (
    name TEXT PRIMARY KEY,
    used INTEGER NOT NULL,
    tat INTEGER NOT NULL,
    shut_until INTEGER NOT NULL,
    look INTEGER,
    kept_seq INTEGER,
    kept_priority INTEGER,
    kept_slots INTEGER,
    fence INTEGER NOT NULL,
    sparing_until INTEGER NOT NULL,
    credit INTEGER NOT NULL,
    spare_at INTEGER NOT NULL,
    taken_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX gauge_look ON gauge (look) WHERE look IS NOT NULL;
