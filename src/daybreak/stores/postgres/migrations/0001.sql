-- A job's immutable part stands in `job`; which of the small moving tables holds its seq is its state.
-- Text that a person may have written (notes, messages, lines of history) is kept as JSON or as bytes, because a text
-- of PostgreSQL cannot hold every character that a str of Python can.
CREATE TABLE daybreak.meta (name text COLLATE "C" PRIMARY KEY, value text NOT NULL);

CREATE SEQUENCE daybreak.seq;
CREATE SEQUENCE daybreak.revision;
CREATE SEQUENCE daybreak.pos;

-- One lane for each queue, task and version: a claim opens only the lanes of tasks its worker knows.
CREATE TABLE daybreak.lane (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    UNIQUE (queue, task, version)
);

-- The settings of queues that have any, in columns; the record of kind `queue` says the same. Whoever must keep a limit
-- locks the row first and counts in a later statement.
CREATE TABLE daybreak.queue (
    name text COLLATE "C" PRIMARY KEY,
    paused boolean NOT NULL,
    max_running bigint,
    capacity bigint,
    sheds boolean NOT NULL,
    aging boolean NOT NULL,
    patience bigint NOT NULL,
    weight bigint NOT NULL
) WITH (fillfactor = 50);

-- band, ord and priority change only when a person re-ranks the job; expires is cleared at its first start.
CREATE TABLE daybreak.job (
    seq bigint PRIMARY KEY,
    created bigint NOT NULL,
    arrived bigint NOT NULL,
    ord bigint NOT NULL,
    expires bigint,
    lane integer NOT NULL,
    band smallint NOT NULL,
    priority smallint NOT NULL,
    asked smallint NOT NULL,
    id text COLLATE "C" NOT NULL,
    by text COLLATE "C" NOT NULL,
    run text COLLATE "C",
    owner text COLLATE "C",
    key text COLLATE "C",
    uniq text COLLATE "C",
    options bytea,
    extra bytea,
    args bytea NOT NULL
);
CREATE UNIQUE INDEX job_id ON daybreak.job (id);
CREATE INDEX job_lane ON daybreak.job (lane, seq);
CREATE INDEX job_run ON daybreak.job (run, seq) WHERE run IS NOT NULL;
CREATE INDEX job_owner ON daybreak.job (owner, seq) WHERE owner IS NOT NULL;
CREATE INDEX job_expires ON daybreak.job (expires, seq) WHERE expires IS NOT NULL;

-- Rows of the moving tables are inserted and deleted, never updated (leases apart): nothing moves under a lock.
-- `needs` is what a job shares with others while it runs, as JSON: {"resource": slots}; NULL for most.
CREATE TABLE daybreak.ready (
    lane integer NOT NULL,
    band smallint NOT NULL,
    priority smallint NOT NULL,
    ord bigint NOT NULL,
    seq bigint NOT NULL,
    expires bigint,
    attempt integer NOT NULL,
    fence integer NOT NULL,
    n integer NOT NULL,
    started bigint,
    progress double precision,
    carry bytea,
    note bytea,
    message bytea,
    history text,
    needs text,
    PRIMARY KEY (lane, band, ord, seq)
);

-- clock 0: due by steady time (delays, retries); 1: due by wall time (run_at).
CREATE TABLE daybreak.delayed (
    seq bigint PRIMARY KEY,
    clock smallint NOT NULL,
    due bigint NOT NULL,
    attempt integer NOT NULL,
    fence integer NOT NULL,
    n integer NOT NULL,
    started bigint,
    progress double precision,
    carry bytea,
    note bytea,
    message bytea,
    history text
);
CREATE INDEX delayed_due ON daybreak.delayed (clock, due, seq);

-- Suspended and blocked jobs; `cause` is what a blocked one waits for, in the order of rank within each lane.
CREATE TABLE daybreak.held (
    seq bigint PRIMARY KEY,
    state text COLLATE "C" NOT NULL,
    cause text COLLATE "C",
    lane integer NOT NULL,
    band smallint NOT NULL,
    ord bigint NOT NULL,
    clock smallint,
    due bigint,
    attempt integer NOT NULL,
    fence integer NOT NULL,
    n integer NOT NULL,
    started bigint,
    progress double precision,
    carry bytea,
    note bytea,
    message bytea,
    history text
);
CREATE INDEX held_cause ON daybreak.held (cause, lane, band, ord, seq) WHERE cause IS NOT NULL;

-- Resources (core/resource_gauge.py): what is allowed, as their records say, and what is in use. Only a transaction that holds
-- the lock of all resources changes a row: see lock_gauges. Retries that wait because a resource fails have a row of their
-- own, which says how many there are and when to look at them. `taken_at` is the wall time of the latest start by a rate, as
-- leases keep it in `started`: a lease that was never used gives its start back if no job has started later.
CREATE TABLE daybreak.gauge (
    name text COLLATE "C" PRIMARY KEY,
    slots bigint,
    every bigint,
    burst bigint NOT NULL,
    max_waiting bigint,
    probes bigint,
    shut_until bigint NOT NULL,
    used bigint NOT NULL,
    waiting bigint NOT NULL,
    tat bigint NOT NULL,
    look bigint,
    kept_seq bigint,
    kept_priority smallint,
    kept_slots bigint,
    fence bigint NOT NULL,
    sparing_until bigint NOT NULL,
    credit bigint NOT NULL,
    spare_at bigint NOT NULL,
    taken_at bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX gauge_look ON daybreak.gauge (look) WHERE look IS NOT NULL;

-- `ahead`: claimed ahead of time; the holder has not reported yet that the work began.
CREATE TABLE daybreak.lease (
    seq bigint PRIMARY KEY,
    until bigint NOT NULL,
    term bigint NOT NULL,
    started bigint NOT NULL,
    lane integer NOT NULL,
    attempt integer NOT NULL,
    fence integer NOT NULL,
    n integer NOT NULL,
    priority smallint NOT NULL,
    reaped boolean NOT NULL DEFAULT false,
    alone boolean NOT NULL DEFAULT false,
    suspending boolean NOT NULL DEFAULT false,
    worker text COLLATE "C" NOT NULL,
    call text COLLATE "C",
    uniq text COLLATE "C",
    progress double precision,
    cancelling bytea,
    carry bytea,
    message bytea,
    history text,
    needs text,
    ahead boolean NOT NULL DEFAULT false
) WITH (fillfactor = 90);
CREATE INDEX lease_until ON daybreak.lease (until);

CREATE TABLE daybreak.done (
    seq bigint PRIMARY KEY,
    finished bigint NOT NULL,
    purge_at bigint,
    started bigint,
    attempt integer NOT NULL,
    fence integer NOT NULL,
    n integer NOT NULL,
    state text COLLATE "C" NOT NULL,
    reason text COLLATE "C",
    progress double precision,
    result bytea,
    carry bytea,
    note bytea,
    message bytea,
    history text
);
CREATE INDEX done_purge ON daybreak.done (purge_at, seq) WHERE purge_at IS NOT NULL;
CREATE INDEX done_unhappy ON daybreak.done (state, seq) WHERE state <> 'completed';
CREATE INDEX done_reason ON daybreak.done (reason, seq) WHERE reason IS NOT NULL;

-- An idempotency key outlives its job. Once a purge has deleted the job, submits under the key are refused until `dropped`;
-- then the key is free. `at` is the time of the submit under the key, where that is not the time of the job's own submit.
CREATE TABLE daybreak.idem (
    key text COLLATE "C" PRIMARY KEY,
    digest text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    dropped bigint,
    at bigint
);
CREATE INDEX idem_id ON daybreak.idem (id);
CREATE INDEX idem_dropped ON daybreak.idem (dropped, key) WHERE dropped IS NOT NULL;
CREATE TABLE daybreak.uniq (name text COLLATE "C" PRIMARY KEY, seq bigint NOT NULL);

-- Differences, appended by everyone and folded now and then, so that no row is fought over; their sum is the count. Busy
-- programs add to the totals by the same rows: what became of `n` jobs is then also `what` has happened to them, and the
-- rest of the row is that of a total.
CREATE TABLE daybreak.tally (
    lane integer NOT NULL,
    priority smallint NOT NULL,
    state text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    what text COLLATE "C",
    took bigint,
    latest bigint,
    ran bigint,
    firsts bigint,
    waited bigint,
    attempts bigint,
    batches bigint
);
CREATE INDEX tally_lane ON daybreak.tally (lane);

-- What has happened, appended and folded in the same way: `n` times `what`, which `took` so long. Settlements say more, all
-- of it in the row of what they count as: the latest, how long that one ran, how many were first attempts and how long their
-- jobs had waited, the highest attempt above the first, and how many exchanges brought some. See totals.py.
CREATE TABLE daybreak.total (
    lane integer NOT NULL,
    priority smallint NOT NULL,
    what text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    took bigint,
    latest bigint,
    ran bigint,
    firsts bigint,
    waited bigint,
    attempts bigint,
    batches bigint
);

-- All events of one transaction are one row: a JSON object a line, told of as many jobs as `runs` says at its place, whose
-- ids stand in `ids` (separated by the character 31), for in a batch most lines are the same.
-- A follower asks for what his last snapshot did not show, in the order of pos, which is drawn at the end of each
-- transaction, when all its rows are locked: so the events of one job stand in order.
CREATE TABLE daybreak.feed (
    pos bigint PRIMARY KEY DEFAULT nextval('daybreak.pos'),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at bigint NOT NULL,
    ids text NOT NULL,
    runs integer[] NOT NULL,
    lines text NOT NULL
);
CREATE INDEX feed_xid ON daybreak.feed (xid);

CREATE TABLE daybreak.record (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (kind, name)
) WITH (fillfactor = 80);

-- What was submitted inside someone's own transaction: only appended there, accepted after its commit by whoever
-- comes next.
CREATE TABLE daybreak.incoming (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    spec bytea NOT NULL
);

-- Of those, what could not be accepted, and why: kept for people to look at.
CREATE TABLE daybreak.aside (n bigint PRIMARY KEY, spec bytea NOT NULL, why text NOT NULL);

-- Who waits for what: a wake-up is sent only where someone listens. Lost in a crash of the server, as the waiters are.
CREATE UNLOGGED TABLE daybreak.waiting (
    topic text COLLATE "C" NOT NULL,
    who text COLLATE "C" NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (topic, who)
) WITH (fillfactor = 50);

-- Tables through which every job passes must be swept often: by the number of dead rows, not by a share of the table.
ALTER TABLE daybreak.ready SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE daybreak.lease SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE daybreak.delayed SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE daybreak.tally SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE daybreak.total SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE daybreak.gauge SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE daybreak.waiting SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE daybreak.feed ALTER COLUMN ids SET STORAGE EXTERNAL;
