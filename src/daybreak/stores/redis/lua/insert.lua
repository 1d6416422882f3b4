-- Insert: jobs in bulk, each answering for itself.

local SPEC = '<I4I4BBBdddddHc0'
local NEW, DUPLICATE, CONFLICT, FULL = 0, 1, 2, 3
local BY_ID, BY_KEY, BY_UNIQUE = 1, 2, 3
local REPLACE, RAISE, REFUSE = 2, 3, 4

-- The lanes and the tails of events that the jobs of this call share, then the jobs.
local function read_specs()
  local batch = { lanes = {}, queues = {}, tails = {}, specs = {} }
  for i = 1, number() do
    batch.queues[i] = arg()
    batch.lanes[i] = arg()
  end
  for i = 1, number() do batch.tails[i] = arg() end
  for i = 1, number() do
    local spec = { arg(), arg(), false }
    if unpack_from('<B', spec[1], 10) ~= 0 then spec[3] = arg() end
    batch.specs[i] = spec
  end
  return batch
end

local function answer(verdict, same, job, seq, state)
  return pack('<BBBd', verdict, same, state, seq), job
end

local function answer_for(verdict, same, job)
  return answer(verdict, same, job.id, tonumber(job.seq), job.state)
end

-- What a job is tied to: its key, the digest of its content, its unique name, and the run and owner it belongs to.
local function read_ties(packed)
  local flags, key, digest, unique, run_, owner = unpack_from('<BHc0Hc0Hc0Hc0Hc0', packed)
  return {
    key = has(flags, 1) and key or nil, digest = digest, unique = has(flags, 2) and unique or nil,
    run = has(flags, 4) and run_ or nil, owner = has(flags, 8) and owner or nil,
  }
end

local function by_of(tail)
  return (unpack_from('<Hc0', tail, 13))
end

local function defer_to(holder, conflict, ties, priority, by)
  if conflict == REFUSE then return answer_for(CONFLICT, BY_UNIQUE, holder) end
  if conflict == RAISE and priority < holder.priority and holder.state ~= RUNNING then rerank(holder, priority, by) end
  if ties.key then -- the holder answers for this key from now on, also when it has ended
    know_key(holder, ties.key, ties.digest)
    save(holder)
  end
  return answer_for(DUPLICATE, BY_UNIQUE, holder)
end

local function known_key(ties)
  local there = hget('key', ties.key)
  if not there then return nil end
  local id, at = unpack_from('<Hc0', there)
  local verdict = there:sub(at) == ties.digest and DUPLICATE or CONFLICT
  local seq = hget('id', id)
  local job = seq and job_of(seq)
  if job then return answer_for(verdict, BY_KEY, job) end
  return answer(verdict, BY_KEY, id, 0, NO_STATE)
end

local function accept_ties(job, ties)
  if ties.unique or ties.key then tie(job, ties.unique, {}) end
  if ties.unique then hset('unique', ties.unique, job.seq) end
  if ties.key then know_key(job, ties.key, ties.digest) end
  if ties.run or ties.owner then
    local run_, owner = ties.run and '=' .. ties.run or '', ties.owner and '=' .. ties.owner or ''
    hset('belongs', job.seq, pack('<Hc0Hc0', #run_, run_, #owner, owner))
    if ties.run then zset('run:' .. ties.run, job.seq, tonumber(job.seq)) end
    if ties.owner then zset('owner:' .. ties.owner, job.seq, tonumber(job.seq)) end
  end
end

-- Insert all; those that come with a settlement are part of it, and not refused for a full queue.
local function insert_all(batch, bounded)
  local specs, answers, others, ids = batch.specs, {}, {}, {}
  if #specs == 0 then return '', others end
  for i = 1, #specs do
    local spec = specs[i]
    spec.lane, spec.tail, spec.priority, spec.conflict, spec.clock, spec.due, spec.expires, spec.fence, spec.keep,
      spec.keep_failed, spec.id = unpack_from(SPEC, spec[1])
    ids[i] = spec.id
  end
  local known_ids = fetch('id', ids)
  local last = tonumber(call('HGET', META, 'seq') or 0)
  local before = last
  for i = 1, #specs do
    local spec = specs[i]
    local verdict, other
    local ties = spec[3] and read_ties(spec[3])
    local seq = known_ids[spec.id]
    local holder = nil
    if seq then
      verdict, other = answer_for(DUPLICATE, BY_ID, job_of(seq))
    elseif ties and ties.key then
      verdict, other = known_key(ties)
    end
    if not verdict and ties and ties.unique then
      local held = hget('unique', ties.unique)
      holder = held and job_of(held)
      if holder and not (spec.conflict == REPLACE and holder.state ~= RUNNING) then
        verdict, other = defer_to(holder, spec.conflict, ties, spec.priority, by_of(batch.tails[spec.tail]))
      end
    end
    if not verdict then
      local queue = batch.queues[spec.lane]
      local settings = settings_of(queue)
      if bounded and settings.capacity then
        local freed = holder and queue_of(holder.lane) == queue and 1 or 0
        if counted('unfinished', unfinished, queue) - freed >= settings.capacity then
          verdict, other = answer(FULL, 0, spec.id, 0, NO_STATE)
        end
      end
      if not verdict then
        local tail = batch.tails[spec.tail]
        if holder then finish(holder, CANCELLED, by_of(tail), KIND.cancelled, nil, 'replaced', batch.replaced) end
        last = last + 1
        seq = padded(last)
        local lane = batch[spec.lane]
        if not lane then
          lane = lane_of(queue, batch.lanes[spec.lane])
          batch[spec.lane] = lane
        end
        local job = {
          seq = seq, id = spec.id, state = QUEUED, reason = 0, flags = 0, marks = 0, priority = spec.priority,
          clock = 0, lane = lane, attempt = 0, fence = spec.fence, n = 1, lost = 0, timeouts = 0,
          x = score_of(settings, spec.priority, now), y = NONE, started = NONE, holder = '', history = '',
        }
        if spec.clock ~= 0 then
          local due = spec.clock == WALL and spec.due or now + spec.due
          if due > now then job.state, job.clock, job.y = SCHEDULED, spec.clock, due end
        end
        if spec.expires >= 0 then
          job.marks = EXPIRY
          zset('expiring', seq, now + spec.expires)
        end
        if ties then accept_ties(job, ties) end
        hset('id', spec.id, seq)
        hset('job', seq, pack('<ddd', now, spec.keep, spec.keep_failed) .. spec[2])
        zset('all:' .. text(lane), seq, last)
        enter(job)
        save(job)
        tell_feed(spec.id, pack('<BBBBI4dd', KIND.submitted, job.state, 0, spec.priority, 1, now, due_at(job)) .. tail)
        verdict, other = answer(NEW, 0, spec.id, last, job.state)
      end
    end
    answers[i] = verdict
    if other ~= spec.id then others[#others + 1] = other end
  end
  if last ~= before then call('HSET', META, 'seq', text(last)) end
  flush()
  return table.concat(answers), others
end
