-- One job: how it is stored, and the steps that every transition is made of.
--
-- at      seq -> its changing part: HEAD, id, holder (worker, call, who requested a cancel) while it runs, NEEDED if it
--         needs resources, and its history; the first event is stored only if it contains more than the spec
--         x: score (waiting), end of the lease (running), end of the job (final); y: due time, length of the lease, purge
--         time
-- job     seq -> its immutable part: created, keep_completed, keep_failed, and the packed spec
-- ties    seq -> its unique name and idempotency keys, if it has any
-- checkpoint, failure, note, progress, result: seq -> as the client packed it; `marks` has a bit for each that exists
-- flies, points: see flight.lua
-- batch   seq -> its batch key; the mark BATCH says that a job has one
-- company:<lane>:<batch>  the jobs that a batch call may take along, in rank order: queued, or blocked on a resource
-- group   seq -> the head of the batch call that a running job is in, and of a head how many jobs the call has; the flag
--         GROUPED says that a job is in one
-- left    head -> how many jobs of its call still run
local RECORD = HEAD .. 'Hc0Hc0'

function M.job_of(seq)
  local record = M.hget('at', seq)
  if not record then return nil end
  local job, at = { seq = seq }, nil
  job.state, job.reason, job.flags, job.marks, job.priority, job.clock, job.lane, job.attempt, job.fence, job.n,
    job.lost, job.timeouts, job.x, job.y, job.started, job.id, job.holder, at = unpack_from(RECORD, record)
  if M.has(job.marks, K.NEEDS) then job.since, job.on, job.needs, at = unpack_from(K.NEEDED, record, at) end
  job.history = record:sub(at)
  return job
end

function M.needed(job)
  return job.needs and pack(K.NEEDED, job.since, job.on, #job.needs, job.needs) or ''
end

function M.save(job)
  M.hset('at', job.seq, pack(RECORD,
    job.state, job.reason, job.flags, job.marks, job.priority, job.clock, job.lane, job.attempt, job.fence, job.n,
    job.lost, job.timeouts, job.x, job.y, job.started, #job.id, job.id, #job.holder, job.holder)
    .. M.needed(job) .. job.history)
end

-- Stores a job that a transition has given a new head and event. The head is not packed again, which is slow: `enter` must
-- not change what is in it.
function M.apply(job, head, line)
  job.state, job.reason, job.flags, job.marks, job.priority, job.clock, job.lane, job.attempt, job.fence, job.n,
    job.lost, job.timeouts, job.x, job.y, job.started = unpack_from(HEAD, head)
  M.record(job, line)
  M.enter(job)
  M.hset('at', job.seq, head .. pack('<Hc0Hc0', #job.id, job.id, #job.holder, job.holder) .. M.needed(job) .. job.history)
end

function M.mark(job, bit_, name, value)
  if value and value ~= '' then
    job.marks = M.with(job.marks, bit_)
    M.hset(name, job.seq, value)
  elseif M.has(job.marks, bit_) then
    job.marks = job.marks - bit_
    M.hset(name, job.seq, false)
  end
end

function M.record(job, line)
  job.history = M.shortened(job.history .. line, job.n)
  M.add_to_feed(job.id, line)
end

function M.change(job, kind, state, by, tail, reason, run_at, fence, attempt, priority)
  job.n = job.n + 1
  M.record(job, M.event(kind, state or NO_STATE, reason or 0, priority or NO_PRIORITY, job.n, run_at or NONE,
    fence or NONE, attempt or NO_ATTEMPT, by, tail or ''))
end

-- -- batch calls ------------------------------------------------------------------------------------------------------

function M.company_of(job) return 'company:' .. text(job.lane) .. ':' .. M.hget('batch', job.seq) end

-- Whether a batch call may take a job along from where it is: it is queued, or waits for a resource that the head of the
-- call takes for all.
local function is_in_company(job)
  if not M.has(job.marks, K.BATCH) then return false end
  if job.state == QUEUED then return true end
  return job.state == BLOCKED and not M.has(job.marks, K.FOLLOWS) and job.on <= K.RETRIES
end

-- The head of the call that a job is in; and how many jobs that has, if it is the head.
function M.call_of(job)
  return unpack_from('<c16I4', M.hget('group', job.seq))
end

-- The lease of a job of a call ends. The last one gives the slots of the call back.
local function leave_call(job)
  local head = M.call_of(job)
  local left = tonumber(M.hget('left', head)) - 1
  M.hset('group', job.seq, false)
  M.hset('left', head, left > 0 and text(left))
  if left == 0 and job.needs then M.give_back(M.needs_of(job.needs)) end
end

-- -- sets of states ---------------------------------------------------------------------------------------------------

function M.arrived(job)
  return unpack_from('<d', M.hget('job', job.seq)) - wall + now
end

function M.update_rank(job)
  job.x = M.score_of(M.settings_of(M.queue_of(job.lane)), job.priority, M.arrived(job))
end

function M.leave(job)
  local state = job.state
  if is_in_company(job) then M.zset(M.company_of(job), job.seq, false) end
  if state == QUEUED then
    M.zset('queued:' .. text(job.lane), job.seq, false)
  elseif state == SCHEDULED then
    M.zset(K.DUE[job.clock], job.seq, false)
  elseif state == RUNNING then
    M.zset('lease', job.seq, false)
    local queue = M.queue_of(job.lane)
    if M.settings_of(queue).max_running then M.wake_work(queue) end
    if M.has(job.flags, K.GROUPED) then
      leave_call(job)
    elseif job.needs then
      M.give_back(M.needs_of(job.needs))
    end
    job.flags, job.holder = 0, ''
  elseif state == BLOCKED then
    M.wait_for(M.blocked_on(job), M.waited_needs(job), job.lane, job.seq, false)
  elseif state == SUSPENDED then
    M.zset('held', job.seq, false)
  else
    M.zset('purge', job.seq, false)
    if state ~= COMPLETED then M.zset(state == FAILED and 'failed' or 'cancelled', job.seq, false) end
  end
  M.tally(job.lane, job.priority, state, -1)
end

function M.enter(job)
  local state = job.state
  if state ~= BLOCKED then job.marks = M.without(job.marks, K.FOLLOWS) end
  if is_in_company(job) then M.zset(M.company_of(job), job.seq, job.x) end
  if state == QUEUED then
    M.zset('queued:' .. text(job.lane), job.seq, job.x)
    M.wake_work(M.queue_of(job.lane))
  elseif state == SCHEDULED then
    M.zset(K.DUE[job.clock], job.seq, job.y)
    M.wake_work(M.queue_of(job.lane)) -- an idle worker must recompute when to wake
  elseif state == RUNNING then
    M.zset('lease', job.seq, job.x)
  elseif state == BLOCKED then
    M.wait_for(M.blocked_on(job), M.waited_needs(job), job.lane, job.seq, job.x)
  elseif state == SUSPENDED then
    M.zset('held', job.seq, tonumber(job.seq))
  else
    if job.y ~= NONE then M.zset('purge', job.seq, job.y) end
    if state ~= COMPLETED then M.zset(state == FAILED and 'failed' or 'cancelled', job.seq, tonumber(job.seq)) end
  end
  M.tally(job.lane, job.priority, state, 1)
end

-- The state of a job that no longer waits for its time: queued; or, if a holder runs it, blocked on its first resource,
-- which is offered before this script ends.
function M.ready_state(job)
  local needs = job.needs and M.needs_of(job.needs)
  if not needs or not needs.holder then return QUEUED end
  job.on = 1
  if job.since == NONE then job.since = now end
  freed[needs[1].resource] = true
  return BLOCKED
end

function M.is_early(job)
  return job.clock ~= 0 and job.y > (job.clock == K.WALL and wall or now)
end

function M.due_at(job)
  return job.state == SCHEDULED and job.y or NONE
end

function M.is_overdue(seq)
  return tonumber(call('ZSCORE', P .. 'expiring', seq)) <= now
end

-- Expiry limits the wait for the first start only. Waits between retries do not expire.
function M.forget_expiry(job)
  if M.has(job.marks, K.EXPIRY) then
    job.marks = job.marks - K.EXPIRY
    M.zset('expiring', job.seq, false)
  end
end

-- -- leases -----------------------------------------------------------------------------------------------------------

-- Note, progress and expiry end with the wait.
function M.end_wait(job)
  M.forget_expiry(job)
  M.mark(job, K.NOTE, 'note', false)
  M.mark(job, K.PROGRESS, 'progress', false)
end

-- Leases one job. What it needs is taken already. Most claims lease jobs without loading them: see claim.lua.
function M.begin_lease(job, flags, lease_for, by, holder)
  M.leave(job)
  M.end_wait(job)
  job.on, job.since, job.holder = 0, NONE, holder
  M.apply(job, started(flags, job.marks, job.priority, job.lane, job.attempt, job.fence, job.n, job.lost, job.timeouts,
    now, wall, lease_for, by))
end

-- -- unique names and idempotency keys --------------------------------------------------------------------------------

function M.ties_of(job)
  if not M.has(job.marks, K.TIES) then return nil, {} end
  local packed = M.hget('ties', job.seq)
  local named, unique, code, at = unpack_from('<BHc0Hc0', packed)
  local keys, key = {}, nil
  while at <= #packed do
    key, at = unpack_from('<Hc0', packed, at)
    keys[#keys + 1] = key
  end
  return named % 2 == 1 and unique or nil, keys, named >= 2, code
end

-- The digest of the code that submitted a job with a key.
function M.code_of(job)
  local _, _, _, code = M.ties_of(job)
  return code
end

-- `gives_up`: the job gives up its unique name once it runs.
function M.tie(job, unique, keys, gives_up, code)
  local packed = pack('<BHc0Hc0', (unique and 1 or 0) + (gives_up and 2 or 0), #(unique or ''), unique or '', #(code or ''),
    code or '')
  for i = 1, #keys do packed = packed .. pack('<Hc0', #keys[i], keys[i]) end
  M.hset('ties', job.seq, packed)
  job.marks = M.with(job.marks, K.TIES)
end

function M.release_unique(job)
  if M.has(job.marks, K.TIES) then
    local unique = M.ties_of(job)
    if unique and M.hget('unique', unique) == job.seq then M.hset('unique', unique, false) end
  end
end

-- `at` is the steady time at which the key was submitted. NONE: the same as its job's, before any jump of the clock.
function M.assign_key(job, key, digest, at)
  local unique, keys, gives_up, code = M.ties_of(job)
  keys[#keys + 1] = key
  M.tie(job, unique, keys, gives_up, code)
  M.hset('key', key, pack('<Hc0d', #job.id, job.id, at) .. digest)
end

-- Whether a key whose job is gone is still spent: its retention is not over.
function M.is_spent(key)
  local till = call('ZSCORE', P .. 'dropped', key)
  return till and tonumber(till) > now
end

-- -- totals: counters of what has happened ----------------------------------------------------------------------------
-- A cell is a lane and a priority, in one number.
--
-- total  cell -> the number of submitted jobs (insert.lua, submit.lua)
--        cell: -> the counters of most settlements (settle.lua)
--        cell:what -> how often anything else happened, and how long it took in total; for `attempts` the highest number

function M.count(lane, priority, what, n, took)
  local field = text(lane * 16 + priority) .. ':' .. what
  local entry = totals[field]
  if not entry then
    totals[field] = { n = n, took = took, is_highest = what == 'attempts' }
  elseif entry.is_highest then
    entry.n = math.max(entry.n, n)
  else
    entry.n, entry.took = entry.n + n, entry.took + took
  end
end

function M.write_totals()
  local fields = {}
  for field in pairs(totals) do fields[#fields + 1] = field end
  local kept = M.fetch('total', fields)
  for field, entry in pairs(totals) do
    local n, took = 0, 0
    if kept[field] then n, took = unpack_from('<dd', kept[field]) end
    n = entry.is_highest and math.max(n, entry.n) or n + entry.n
    M.hset('total', field, pack('<dd', n, took + entry.took))
  end
end

-- -- ends -------------------------------------------------------------------------------------------------------------

-- A job ends. `keep` is how long it is kept; NONE: forever.
function M.close(job, keep)
  M.forget_expiry(job)
  job.clock = 0
  job.x = wall
  job.y = keep < 0 and NONE or now + keep
  M.release_unique(job)
  finals[#finals + 1] = M.size_of(job.id) .. job.id
end

-- Completes one job. Whether it has a result of its own is marked already. Most settlements complete jobs without loading
-- them: see settle.lua.
function M.complete(job, fate)
  M.leave(job)
  M.mark(job, K.FAILURE, 'failure', false)
  M.mark(job, K.CHECKPOINT, 'checkpoint', false)
  M.close(job, fate.keep)
  M.apply(job, completed(fate, job.marks, job.priority, job.lane, job.fence, job.n, job.started, now, wall))
end

local REASON_NAMES = { [K.REASON_ERROR] = 'error', [K.REASON_EXPIRED] = 'expired', [K.REASON_SHED] = 'shed' }

-- End a job that did not run to an outcome: cancelled, replaced, expired, shed or failed fast at a breaker.
function M.finish(job, state, by, kind, reason, note, tail)
  if job.needs then M.release_offers(job) end
  M.leave(job)
  job.state, job.reason = state, reason or 0
  M.mark(job, K.NOTE, 'note', note)
  local _, completed, failed = unpack_from('<ddd', M.hget('job', job.seq))
  M.close(job, state == FAILED and failed or completed)
  M.count(job.lane, job.priority, reason and 'failed ' .. REASON_NAMES[reason] or 'cancelled', 1, 0)
  M.change(job, kind, state, by, tail, reason, nil, nil, job.attempt)
  M.enter(job)
  M.save(job)
  if M.has(job.marks, K.FLIGHT) then M.leave_flight(job) end
end

function M.expire(job)
  M.finish(job, FAILED, '', K.expired, K.REASON_EXPIRED)
end

function M.fail(job, by, kind, reason, note)
  M.finish(job, FAILED, by, kind, reason, note, cmsgpack.pack({ note = note }))
end

function M.rerank(job, priority, by)
  if job.needs then M.release_reservation(M.needs_of(job.needs), job.seq) end
  M.leave(job)
  local before = job.priority
  job.priority = priority or before
  M.update_rank(job)
  if job.priority ~= before then
    M.change(job, K.reprioritised, nil, by, nil, nil, nil, nil, nil, job.priority)
  end
  M.enter(job)
  M.save(job)
end

-- The keys of a job stay spent until `keys_for` after their submit or, if the job `lives_on` in another store, after now.
-- nil frees them at once.
function M.drop_keys(job, keys_for, lives_on)
  local _, keys = M.ties_of(job)
  for i = 1, #keys do
    local key = keys[i]
    if not keys_for then
      M.hset('key', key, false)
    else
      local _, at = unpack_from('<Hc0d', M.hget('key', key))
      if lives_on then
        at = now
      elseif at == NONE then
        at = unpack_from('<d', M.hget('job', job.seq))
      end
      M.zset('dropped', key, at + keys_for)
    end
  end
end

-- Delete a job. Its idempotency keys follow later: see drop_keys.
function M.drop(job, keys_for, lives_on)
  if job.needs and job.state < COMPLETED then M.release_offers(job) end
  M.leave(job)
  if M.has(job.marks, K.FLIGHT) then
    if job.state < COMPLETED then M.leave_flight(job) end
    M.hset('flies', job.seq, false)
  end
  M.forget_expiry(job)
  if M.has(job.marks, K.TIES) then
    M.release_unique(job)
    M.drop_keys(job, keys_for, lives_on)
    M.hset('ties', job.seq, false)
  end
  M.mark(job, K.CHECKPOINT, 'checkpoint', false)
  M.mark(job, K.FAILURE, 'failure', false)
  M.mark(job, K.NOTE, 'note', false)
  M.mark(job, K.PROGRESS, 'progress', false)
  M.mark(job, K.RESULT, 'result', false)
  if M.has(job.marks, K.POINTS) then M.release_result(job) end
  M.mark(job, K.BATCH, 'batch', false)
  local belongs = M.hget('belongs', job.seq)
  if belongs then
    local run_, owner = unpack_from('<Hc0Hc0', belongs)
    if run_ ~= '' then M.zset('run:' .. run_:sub(2), job.seq, false) end
    if owner ~= '' then M.zset('owner:' .. owner:sub(2), job.seq, false) end
    M.hset('belongs', job.seq, false)
  end
  M.hset('at', job.seq, false)
  M.hset('job', job.seq, false)
  M.hset('id', job.id, false)
  M.zset('all:' .. text(job.lane), job.seq, false)
end
