-- The immutable part of a job is in `job`. Its state is the table that contains its seq: ready, delayed, held, lease or
-- done.
-- Text that a person may have written (notes, messages, lines of history) is stored as JSON or as bytes, because a text of
-- PostgreSQL cannot contain every character of a Python str.
CREATE TABLE daybreak.meta (name text COLLATE "C" PRIMARY KEY, value text NOT NULL);

CREATE SEQUENCE daybreak.seq;
CREATE SEQUENCE daybreak.revision;
CREATE SEQUENCE daybreak.pos;

-- One lane for each queue, task and version: a claim reads only the lanes of tasks that its worker knows.
CREATE TABLE daybreak.lane (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    UNIQUE (queue, task, version)
);

-- The settings of queues that have any; the record of kind `queue` contains the same. A transaction that must keep a limit
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
    seq bigint NOT NULL,
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
    flight text COLLATE "C",
    options bytea,
    extra bytea,
    args bytea NOT NULL
);
CREATE UNIQUE INDEX job_id ON daybreak.job (id);
CREATE INDEX job_lane ON daybreak.job (lane, seq);
CREATE INDEX job_run ON daybreak.job (run, seq) WHERE run IS NOT NULL;
CREATE INDEX job_owner ON daybreak.job (owner, seq) WHERE owner IS NOT NULL;
CREATE INDEX job_expires ON daybreak.job (expires, seq) WHERE expires IS NOT NULL;
-- Last: in a table that was empty at its last ANALYZE, all indexes with seq look equally cheap, and the planner takes the
-- newest. By job_lane it would read the whole index for each job, until the next ANALYZE.
ALTER TABLE daybreak.job ADD PRIMARY KEY (seq);

-- Rows of ready, delayed, held and done are inserted and deleted, never updated, so a locked row does not move.
-- `needs` are the resources that a job takes while it runs, as JSON: {"resource": slots}; NULL for most. `batch` is the batch
-- key of a job, here and in `held`: a batch call finds its jobs by it. A `special` job is not for plain claims: what its claim
-- depends on is not in this table (`has_claim_rule`).
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
    batch text COLLATE "C",
    special boolean NOT NULL DEFAULT false,
    PRIMARY KEY (lane, band, ord, seq)
);
CREATE INDEX ready_batch ON daybreak.ready (lane, batch, band, ord, seq) WHERE batch IS NOT NULL;

-- clock 0: due by steady time (delays, retries); 1: due by wall time (run_at).
CREATE TABLE daybreak.delayed (
    seq bigint NOT NULL,
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
ALTER TABLE daybreak.delayed ADD PRIMARY KEY (seq); -- last, as that of `job`

-- Suspended and blocked jobs. `cause` is the resource that a blocked job waits for; the indexes of blocked jobs are in rank
-- order per lane. `batch` is set only while a batch call may take the job along: while it is blocked on a resource.
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
    history text,
    batch text COLLATE "C"
);
CREATE INDEX held_batch ON daybreak.held (lane, batch, band, ord, seq) WHERE batch IS NOT NULL;
CREATE INDEX held_cause ON daybreak.held (cause, lane, band, ord, seq) WHERE cause IS NOT NULL;
CREATE INDEX held_lane ON daybreak.held (lane, band, ord, seq) WHERE cause IS NOT NULL;

-- Resources (core/resource_gauge.py): their limits, as their records say, and what is in use. Only a transaction that holds
-- the resource lock changes a row: see lock_gauges. Retries that wait because a resource is failing have their own row, with
-- their number and the time at which they are offered again (`look`). `taken_at` is the wall time of the latest start by a
-- rate, as leases have it in `started`: a lease that was never used gives back its start, less the time from it to the
-- latest start.
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

-- `ahead`: claimed ahead of time; the holder has not reported yet that the work began. `batch_group`: the seq of the head of
-- the batch call that the job is in; `elements`: of a head, how many jobs the call has.
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
    flight text COLLATE "C",
    progress double precision,
    cancelling bytea,
    carry bytea,
    message bytea,
    history text,
    needs text,
    ahead boolean NOT NULL DEFAULT false,
    batch_group bigint,
    elements integer NOT NULL DEFAULT 0
) WITH (fillfactor = 90);
CREATE INDEX lease_batch_group ON daybreak.lease (batch_group) WHERE batch_group IS NOT NULL;
CREATE INDEX lease_until ON daybreak.lease (until);

-- `entry`: the row of `flight` whose result the job has; its own `result` is NULL then.
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
    history text,
    entry bigint
);
CREATE INDEX done_purge ON daybreak.done (purge_at, seq) WHERE purge_at IS NOT NULL;
CREATE INDEX done_unhappy ON daybreak.done (state, seq) WHERE state <> 'completed';
CREATE INDEX done_reason ON daybreak.done (reason, seq) WHERE reason IS NOT NULL;

-- A flight is all jobs that compute the same. As long as its result is not known, it has a leader, which computes it.
-- `flight` is NULL once the result was dropped from the cache; the row lives until no job has its result (`refs`).
-- `landing`: some of its followers are still to be looked after. Whoever reads a row to change it locks the name first.
CREATE SEQUENCE daybreak.flight_number;
CREATE TABLE daybreak.flight (
    number bigint PRIMARY KEY,
    created bigint NOT NULL,
    used bigint NOT NULL,
    leader bigint,
    size bigint NOT NULL,
    ran bigint NOT NULL,
    until bigint,
    hits bigint NOT NULL,
    refs bigint NOT NULL,
    version integer NOT NULL,
    landing boolean NOT NULL,
    is_known boolean NOT NULL,
    flight text COLLATE "C",
    task text COLLATE "C" NOT NULL,
    job text COLLATE "C" NOT NULL,
    parts text NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX flight_flight ON daybreak.flight (flight) WHERE flight IS NOT NULL;
CREATE INDEX flight_used ON daybreak.flight (used, number) WHERE flight IS NOT NULL AND is_known;
CREATE INDEX flight_task ON daybreak.flight (task, used, number) WHERE flight IS NOT NULL AND is_known;
CREATE INDEX flight_until ON daybreak.flight (until, number) WHERE flight IS NOT NULL AND until IS NOT NULL;
CREATE INDEX flight_landing ON daybreak.flight (number) WHERE landing;

-- The result of a flight: beside it, because a flight is written with every job that uses the result.
CREATE TABLE daybreak.result (number bigint PRIMARY KEY, result bytea);

-- How many results a task has in the cache, and how many bytes they are.
CREATE TABLE daybreak.room (task text COLLATE "C" PRIMARY KEY, entries bigint NOT NULL, size bigint NOT NULL) WITH (fillfactor = 50);

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

-- Differences of the counts of jobs: every transaction appends rows, so that no two update the same one, and fold_1 adds
-- them up from time to time. Their sum is the count. The plain path adds to the totals by the same rows: if `what` is not
-- NULL, the row is also a row of `total`.
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

-- Counters of what has happened, appended and folded in the same way: `n` times `what`, which `took` so long in total. A
-- settlement adds more columns: the time of the latest one and how long its attempt ran, the number of first attempts and
-- how long their jobs had waited, the highest attempt above the first, and the number of exchanges. See totals.py.
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

-- All events of one transaction are one row. `lines` has one JSON object per line. In a batch most events are equal, so a
-- line stands for a run of jobs: `runs` has the length of each run, and `ids` their ids, separated by character 31.
-- A follower reads what its last snapshot did not include, in the order of pos. pos is drawn at the end of a transaction,
-- while all its rows are locked, so the events of one job are in order.
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

-- The outbox: jobs that were submitted in a caller's own transaction, which only appends them. After its commit the next
-- claim, advance or read accepts them.
CREATE TABLE daybreak.incoming (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    spec bytea NOT NULL
);

-- Jobs of the outbox that could not be accepted, and why; `doctor` reports them.
CREATE TABLE daybreak.aside (n bigint PRIMARY KEY, spec bytea NOT NULL, why text NOT NULL);

-- Which process waits for which topic: only these are notified. A crash of the server loses the table, like the waiters'
-- connections.
CREATE UNLOGGED TABLE daybreak.waiting (
    topic text COLLATE "C" NOT NULL,
    who text COLLATE "C" NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (topic, who)
) WITH (fillfactor = 50);

-- Tables through which every job passes must be vacuumed often: by the number of dead rows, not by a share of the table.
ALTER TABLE daybreak.ready SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE daybreak.lease SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE daybreak.delayed SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE daybreak.tally SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE daybreak.total SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE daybreak.gauge SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE daybreak.waiting SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE daybreak.feed ALTER COLUMN ids SET STORAGE EXTERNAL;
