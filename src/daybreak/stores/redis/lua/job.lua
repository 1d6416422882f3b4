-- One job: how it is kept, and the small moves that every transition is made of.
--
-- at      seq -> its moving part: HEAD, id, holder (worker, call, who cancels) while it runs, and its history
--         x: waiting its score, running its lease's end, final when it ended; y: due, the lease's length, purge time
-- job     seq -> its immutable part: created, how long it is kept (completed, failed), and what was submitted
-- ties    seq -> its unique name and idempotency keys, if it has any
-- checkpoint, failure, note, progress, result: seq -> as the client packed it; `marks` says which are there
local HEAD = '<BBBBBBI4I4dI4I4I4dddHc0Hc0'

local function job_of(seq)
  local record = hget('at', seq)
  if not record then return nil end
  local job, at = { seq = seq }, nil
  job.state, job.reason, job.flags, job.marks, job.priority, job.clock, job.lane, job.attempt, job.fence, job.n,
    job.lost, job.timeouts, job.x, job.y, job.started, job.id, job.holder, at = unpack_from(HEAD, record)
  job.history = record:sub(at)
  return job
end

local function save(job)
  hset('at', job.seq, pack(HEAD,
    job.state, job.reason, job.flags, job.marks, job.priority, job.clock, job.lane, job.attempt, job.fence, job.n,
    job.lost, job.timeouts, job.x, job.y, job.started, #job.id, job.id, #job.holder, job.holder) .. job.history)
end

local function head_of(record)
  return record:sub(1, 58)
end

local function mark(job, bit_, name, value)
  if value and value ~= '' then
    job.marks = with(job.marks, bit_)
    hset(name, job.seq, value)
  elseif has(job.marks, bit_) then
    job.marks = job.marks - bit_
    hset(name, job.seq, false)
  end
end

local function tell(job, line)
  job.history = shortened(job.history .. line, job.n)
  tell_feed(job.id, line)
end

local function change(job, kind, state, by, tail, reason, run_at, fence, attempt, priority)
  job.n = job.n + 1
  tell(job, event(kind, state or NO_STATE, reason or 0, priority or NO_PRIORITY, job.n, run_at or NONE, fence or NONE,
    attempt or NO_ATTEMPT, by, tail or ''))
end

-- -- places -----------------------------------------------------------------------------------------------------------

local HELD = '<Hc0Hc0Hc0'

local function arrived(job)
  return (unpack_from('<d', hget('job', job.seq)))
end

local function place(job)
  job.x = score_of(settings_of(queue_of(job.lane)), job.priority, arrived(job))
end

local DUE = { 'due:steady', 'due:wall' }

local function leave(job)
  local state = job.state
  if state == QUEUED then
    zset('queued:' .. text(job.lane), job.seq, false)
  elseif state == SCHEDULED then
    zset(DUE[job.clock], job.seq, false)
  elseif state == RUNNING then
    zset('lease', job.seq, false)
    local queue = queue_of(job.lane)
    if settings_of(queue).max_running then wake_work(queue) end
    job.flags, job.holder = 0, ''
  elseif state == SUSPENDED then
    zset('held', job.seq, false)
  else
    zset('purge', job.seq, false)
    if state ~= COMPLETED then zset(state == FAILED and 'failed' or 'cancelled', job.seq, false) end
  end
  tally(job.lane, job.priority, state, -1)
end

local function enter(job)
  local state = job.state
  if state == QUEUED then
    zset('queued:' .. text(job.lane), job.seq, job.x)
    wake_work(queue_of(job.lane))
  elseif state == SCHEDULED then
    zset(DUE[job.clock], job.seq, job.y)
    wake_work(queue_of(job.lane)) -- an idle worker must plan anew
  elseif state == RUNNING then
    zset('lease', job.seq, job.x)
  elseif state == SUSPENDED then
    zset('held', job.seq, tonumber(job.seq))
  else
    if job.y ~= NONE then zset('purge', job.seq, job.y) end
    if state ~= COMPLETED then zset(state == FAILED and 'failed' or 'cancelled', job.seq, tonumber(job.seq)) end
  end
  tally(job.lane, job.priority, state, 1)
end

local function is_early(job)
  return job.clock ~= 0 and job.y > now
end

local function due_at(job)
  return job.state == SCHEDULED and job.y or NONE
end

-- The limit is on the wait for the first start; later waits are the retries' own.
local function forget_expiry(job)
  if has(job.marks, EXPIRY) then
    job.marks = job.marks - EXPIRY
    zset('expiring', job.seq, false)
  end
end

-- -- unique names and idempotency keys --------------------------------------------------------------------------------

local function ties_of(job)
  if not has(job.marks, TIES) then return nil, {} end
  local packed = hget('ties', job.seq)
  local named, unique, at = unpack_from('<BHc0', packed)
  local keys, key = {}, nil
  while at <= #packed do
    key, at = unpack_from('<Hc0', packed, at)
    keys[#keys + 1] = key
  end
  return named == 1 and unique or nil, keys
end

local function tie(job, unique, keys)
  local packed = pack('<BHc0', unique and 1 or 0, #(unique or ''), unique or '')
  for i = 1, #keys do packed = packed .. pack('<Hc0', #keys[i], keys[i]) end
  hset('ties', job.seq, packed)
  job.marks = with(job.marks, TIES)
end

local function release_unique(job)
  if has(job.marks, TIES) then
    local unique = ties_of(job)
    if unique and hget('unique', unique) == job.seq then hset('unique', unique, false) end
  end
end

local function know_key(job, key, digest)
  local unique, keys = ties_of(job)
  keys[#keys + 1] = key
  tie(job, unique, keys)
  hset('key', key, pack('<Hc0', #job.id, job.id) .. digest)
end

-- -- ends -------------------------------------------------------------------------------------------------------------

-- A job has ended: `keep` is how long it stays, NONE is for ever.
local function close(job, keep)
  forget_expiry(job)
  job.clock = 0
  job.x = now
  job.y = keep < 0 and NONE or now + keep
  release_unique(job)
  finals[#finals + 1] = job.id
end

-- End a job without an outcome of its own: cancelled, replaced or expired.
local function finish(job, state, by, kind, reason, note, tail)
  leave(job)
  job.state, job.reason = state, reason or 0
  mark(job, NOTE, 'note', note)
  local _, completed, failed = unpack_from('<ddd', hget('job', job.seq))
  close(job, state == FAILED and failed or completed)
  change(job, kind, state, by, tail, reason, nil, nil, job.attempt)
  enter(job)
  save(job)
end

local function expire(job)
  finish(job, FAILED, '', KIND.expired, EXPIRED)
end

local function rerank(job, priority, by)
  leave(job)
  local before = job.priority
  job.priority = priority or before
  place(job)
  if job.priority ~= before then
    change(job, KIND.reprioritised, nil, by, nil, nil, nil, nil, nil, job.priority)
  end
  enter(job)
  save(job)
end

local PARTS = { checkpoint = CHECKPOINT, failure = FAILURE, note = NOTE, progress = PROGRESS, result = RESULT }

-- Forget a job; its idempotency keys stay a while.
local function drop(job)
  leave(job)
  forget_expiry(job)
  if has(job.marks, TIES) then
    release_unique(job)
    local _, keys = ties_of(job)
    for i = 1, #keys do zset('dropped', keys[i], now) end
    hset('ties', job.seq, false)
  end
  for name, bit_ in pairs(PARTS) do
    if has(job.marks, bit_) then hset(name, job.seq, false) end
  end
  local belongs = hget('belongs', job.seq)
  if belongs then
    local run_, owner = unpack_from('<Hc0Hc0', belongs)
    if run_ ~= '' then zset('run:' .. run_:sub(2), job.seq, false) end
    if owner ~= '' then zset('owner:' .. owner:sub(2), job.seq, false) end
    hset('belongs', job.seq, false)
  end
  hset('at', job.seq, false)
  hset('job', job.seq, false)
  hset('id', job.id, false)
  zset('all:' .. text(job.lane), job.seq, false)
end

-- -- time -------------------------------------------------------------------------------------------------------------

local function fetch_jobs(seqs) return fetch('at', seqs) end

-- Queue what is due; a bounded number, so that a million due at once is no giant script.
local function promote(limit)
  local due = call('ZRANGEBYSCORE', P .. 'due:steady', '-inf', text(now), 'LIMIT', 0, limit)
  if #due < limit then
    local wall = call('ZRANGEBYSCORE', P .. 'due:wall', '-inf', text(now), 'LIMIT', 0, limit - #due)
    for i = 1, #wall do due[#due + 1] = wall[i] end
  end
  if #due == 0 then return 0 end
  fetch_jobs(due)
  for i = 1, #due do
    local job = job_of(due[i])
    leave(job)
    job.state, job.clock, job.y = QUEUED, 0, NONE
    change(job, KIND.due, QUEUED, '')
    enter(job)
    save(job)
  end
  flush()
  return #due
end

local function first_of(name)
  local first = call('ZRANGE', P .. name, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2]) or nil
end

-- Microseconds until the next delayed job falls due, as text; false when there is none.
local function next_in()
  local steady, wall = first_of('due:steady'), first_of('due:wall')
  local first = steady and wall and math.min(steady, wall) or steady or wall
  return first and text(math.max(0, first - now)) or false
end
