-- Flights: jobs that would compute the same result, of which one runs; and the results that are kept, the cache.
--
-- flies       seq -> FLIES: how the result of a job with a flight is kept, its flight, who submitted it; then the parts
--             of the flight. The mark FLIGHT says that a job has one, FOLLOWS that a blocked job waits for its result
-- flight      flight -> the number of its entry
-- entry       number -> ENTRY: the leader, flags, version, created, used, until, size, ran, hits, how many jobs point to
--             it, flight (empty: dropped from the cache), task, the job that computed the result; then the parts
-- computed    number -> the result, as the client packed it
-- points      seq -> the number of the entry that has the result of a job (NOBODY: it has its own), and the job that
--             computed it, if that is another one; the mark POINTS says that a job has one
-- known:<task>  used:<task>   the results that are kept of a task, by number, and by the time of their latest use
-- lapsing  landing            numbers by the time until which the result may be used; those with followers to look after
-- room        task -> how many results it keeps, and their bytes
--
-- As long as no result is known, an entry has a leader. Jobs that follow it wait as those that wait for a resource do, see
-- resource_queue.lua, under the name of their cause.
local FLIES, ENTRY = '<ddHc0Hc0', '<c16BddddddddHc0Hc0Hc0'
local IS_KNOWN, IS_LANDING = 1, 2
local FOLLOWERS_PER_COMMIT, DROPPED_PER_COMMIT, MAX_ENTRIES = 200, 500, 100000 -- as in core/flights.py
local NEW, FOLLOWS, CACHED = 0, 5, 6
local by_number, is_changed, has_landed = {}, false, false

-- The flight of a job: its name, how long and how many bytes of results are kept, who submitted the job, and the parts.
local function flight_of(job)
  if not job.flight then
    local packed, flight, at = M.hget('flies', job.seq), {}, nil
    flight.ttl, flight.size, flight.name, flight.by, at = unpack_from(FLIES, packed)
    flight.parts = packed:sub(at)
    job.flight = flight
  end
  return job.flight
end

function M.flight_cause(job) return K.FLIGHT_OF .. flight_of(job).name end

-- -- entries ----------------------------------------------------------------------------------------------------------

local function counts(entry) return entry.known and entry.flight ~= '' end
local function is_usable(entry) return counts(entry) and (entry.till == NONE or now < entry.till) end

local function entry_at(number)
  local entry = by_number[number]
  if entry then return entry end
  local packed, flags, at = M.hget('entry', number), nil, nil
  if not packed then return nil end
  entry = { number = number }
  entry.leader, flags, entry.version, entry.created, entry.used, entry.till, entry.size, entry.ran, entry.hits, entry.refs,
    entry.flight, entry.task, entry.job, at = unpack_from(ENTRY, packed)
  if entry.leader == K.NOBODY then entry.leader = nil end
  entry.known, entry.landing = M.has(flags, IS_KNOWN), M.has(flags, IS_LANDING)
  entry.parts = packed:sub(at)
  entry.counted, entry.counted_size, entry.was_landing = counts(entry), entry.size, entry.landing
  by_number[number] = entry
  return entry
end

local function entry_of(flight)
  local number = M.hget('flight', flight)
  return number and entry_at(number) or nil
end

local function change(entry) entry.is_changed, is_changed = true, true end

local function add_entry(job, leader)
  local flight = flight_of(job)
  local number = K.SEQ:format(call('HINCRBY', META, 'entry', 1))
  local packed = M.hget('lane', text(job.lane))
  local _, at = unpack_from('<Hc0', packed)
  local task, version = packed:sub(at):match('^(.*)%z(%d+)$')
  local entry = {
    number = number, flight = flight.name, task = task, version = tonumber(version), created = now, used = now, till = NONE,
    leader = leader, known = false, landing = false, job = '', parts = '', size = 0, ran = 0, hits = 0, refs = 0,
    counted = false, counted_size = 0, was_landing = false,
  }
  by_number[number] = entry
  M.hset('flight', flight.name, number)
  change(entry)
  return entry
end

-- Drops an entry from the cache. Its result lives until no job points to it.
local function drop_entry(entry)
  M.hset('flight', entry.flight, false)
  entry.flight = ''
  change(entry)
end

-- Lets no later job have a known result. It is still for those that follow, if some do.
local function forget(entry)
  if not entry.landing then return drop_entry(entry) end
  if is_usable(entry) then
    entry.till = now
    change(entry)
  end
end

local function add_room(task, entries, bytes)
  local stored_room, n, size = M.hget('room', task), 0, 0
  if stored_room then n, size = unpack_from('<dd', stored_room) end
  M.hset('room', task, n + entries ~= 0 and pack('<dd', n + entries, size + bytes))
end

local function write_entry(entry)
  local number, task, is_counted = entry.number, entry.task, counts(entry)
  if is_counted ~= entry.counted or entry.size ~= entry.counted_size then
    add_room(task, (is_counted and 1 or 0) - (entry.counted and 1 or 0),
      (is_counted and entry.size or 0) - (entry.counted and entry.counted_size or 0))
  end
  if is_counted or entry.counted then
    M.zset('known:' .. task, number, is_counted and tonumber(number))
    M.zset('used:' .. task, number, is_counted and entry.used)
    M.zset('lapsing', number, is_counted and entry.till ~= NONE and not entry.landing and entry.till)
  end
  if entry.landing or entry.was_landing then M.zset('landing', number, entry.landing and tonumber(number)) end
  has_landed = has_landed or entry.landing ~= entry.was_landing
  entry.counted, entry.counted_size, entry.was_landing, entry.is_changed = is_counted, entry.size, entry.landing, false
  if entry.flight == '' and entry.refs == 0 then
    M.hset('entry', number, false)
    M.hset('computed', number, false)
    by_number[number] = nil
    return
  end
  M.hset('entry', number, pack(ENTRY, entry.leader or K.NOBODY,
    (entry.known and IS_KNOWN or 0) + (entry.landing and IS_LANDING or 0), entry.version, entry.created, entry.used,
    entry.till, entry.size, entry.ran, entry.hits, entry.refs, #entry.flight, entry.flight, #entry.task, entry.task,
    #entry.job, entry.job) .. entry.parts)
end

-- Writes the changed entries; whether any is landing is noted where every claim reads it.
function M.write_entries()
  if not is_changed then return end
  is_changed = false
  local numbers = {}
  for number, entry in pairs(by_number) do
    if entry.is_changed then numbers[#numbers + 1] = number end
  end
  for i = 1, #numbers do write_entry(by_number[numbers[i]]) end
  if not has_landed then return end
  has_landed = false
  M.flush_only('landing')
  looks.landing = call('ZCARD', P .. 'landing') > 0
  if looks.landing then
    call('HSET', META, 'landing', 1)
  else
    call('HDEL', META, 'landing')
  end
end

-- -- results ----------------------------------------------------------------------------------------------------------

local function point(job, entry, source)
  M.mark(job, K.POINTS, 'points', pack('<c16', entry.number) .. source)
  entry.refs = entry.refs + 1
  change(entry)
end

-- Lets a job have no result any more; returns the entry that it had it from.
function M.release_result(job)
  M.mark(job, K.RESULT, 'result', false)
  if not M.has(job.marks, K.POINTS) then return nil end
  local entry = entry_at((unpack_from('<c16', M.hget('points', job.seq))))
  M.mark(job, K.POINTS, 'points', false)
  if entry then
    entry.refs = entry.refs - 1
    change(entry)
  end
  return entry
end

-- Completes a waiting job with a known result.
local function complete(job, entry, counts_as)
  M.mark(job, K.NOTE, 'note', false)
  point(job, entry, entry.job)
  entry.hits, entry.used = entry.hits + 1, now
  local _, keep = unpack_from('<dd', M.hget('job', job.seq))
  M.count(job.lane, job.priority, counts_as, 1, entry.ran)
  local tail = cmsgpack.pack({ note = 'result of ' .. entry.job })
  M.complete(job, {
    reason = 0, parts = 0, attempt = job.attempt, lost = job.lost, timeouts = job.timeouts, keep = keep,
    event = pack('<BBBB', K.completed, COMPLETED, 0, NO_PRIORITY),
    tail = pack('<dI4Hc0I4c0', NONE, job.attempt, 0, '', #tail, tail),
  })
end

-- Whether a new job of this flight would be completed at once.
function M.is_known(flight)
  local entry = entry_of(flight)
  return entry and is_usable(entry)
end

local function has_room(flight, entries, size)
  return entries <= MAX_ENTRIES and (flight.size < 0 or size <= flight.size)
end

-- Drops what was used longest ago, until the task has no more results than it may keep. A result that has no room at all
-- is not kept, and no other makes room for it.
local function make_room(flight, entry)
  if entry.flight == '' then return end -- it was dropped as soon as its followers had the result: its time is over
  if not has_room(flight, 1, entry.size) then
    entry.till = now
    change(entry)
    if not entry.landing then drop_entry(entry) end
    return
  end
  M.write_entries()
  local count, size = unpack_from('<dd', M.hget('room', entry.task))
  if has_room(flight, count, size) then return end
  M.flush()
  local from, dropped, name = 0, 0, P .. 'used:' .. entry.task
  while dropped < DROPPED_PER_COMMIT do
    local oldest = call('ZRANGE', name, from, from + 99)
    M.fetch('entry', oldest)
    for i = 1, #oldest do
      local old = entry_at(oldest[i])
      if not old.landing then
        dropped = dropped + 1
        if old ~= entry then
          drop_entry(old)
          count, size = count - 1, size - old.size
          if has_room(flight, count, size) then return end
        end
      end
      if dropped == DROPPED_PER_COMMIT then return end
    end
    if #oldest < 100 then return end
    from = from + 100
  end
end

-- -- followers --------------------------------------------------------------------------------------------------------

-- Completes the followers of a flight whose result is known, as many as one script may.
local function land(entry)
  local cause, waiting = K.FLIGHT_OF .. entry.flight, {}
  local lanes = M.waiting_lanes(cause, true)
  for i = 1, #lanes do
    local seqs = M.first_waiting(cause, lanes[i], FOLLOWERS_PER_COMMIT + 1)
    for j = 1, #seqs do waiting[#waiting + 1] = seqs[j] end
  end
  local landed = math.min(#waiting, FOLLOWERS_PER_COMMIT)
  for i = 1, landed do complete(M.job_of(waiting[i]), entry, 'followed') end
  entry.landing = landed < #waiting
  change(entry)
  if not entry.landing and not is_usable(entry) then drop_entry(entry) end
end

-- Lets the best-ranked follower lead a flight that has no result and no leader; without followers it is over.
local function hand_over(entry)
  local cause, best = K.FLIGHT_OF .. entry.flight, nil
  local lanes = M.waiting_lanes(cause, true)
  for i = 1, #lanes do
    local first = M.first_waiting(cause, lanes[i], 1)[1]
    local job = first and M.job_of(first)
    if job and (not best or job.x < best.x or (job.x == best.x and job.seq < best.seq)) then best = job end
  end
  change(entry)
  entry.landing = false
  if not best then return drop_entry(entry) end
  entry.leader = best.seq
  M.unblock(best)
end

-- A job neither waits nor runs any more. If it led its flight, the best-ranked follower does now.
function M.leave_flight(job)
  if not M.has(job.marks, K.FLIGHT) then return end
  local entry = entry_of(flight_of(job).name)
  if entry and entry.leader == job.seq then
    entry.leader = nil
    hand_over(entry)
  end
end

-- Looks after followers that earlier scripts have left: about as many as the limit.
function M.land_due(limit)
  local numbers = call('ZRANGE', P .. 'landing', 0, math.floor(limit / FOLLOWERS_PER_COMMIT))
  for i = 1, #numbers do
    local entry = entry_at(numbers[i])
    if entry.known then land(entry) else hand_over(entry) end
  end
  M.write_entries()
end

-- -- where a job belongs ----------------------------------------------------------------------------------------------

-- If a follower is more urgent than a leader that waits, the leader gets its priority.
function M.urge(job, by)
  if job.state ~= BLOCKED or not M.has(job.marks, K.FOLLOWS) then return end
  local entry = entry_of(flight_of(job).name)
  local leader = entry and entry.leader and M.job_of(entry.leader)
  if leader and leader.state < COMPLETED and leader.state ~= RUNNING and job.priority < leader.priority then
    M.rerank(leader, job.priority, by)
  end
end

local function follow(job, entry)
  local leader = entry.leader and M.job_of(entry.leader)
  if not leader then
    entry.leader = job.seq
    change(entry)
    return NEW
  end
  -- A leader in another queue does not help: that queue may be paused, or have no worker.
  if M.queue_of(leader.lane) ~= M.queue_of(job.lane) then return NEW end
  M.leave(job)
  job.state, job.marks = BLOCKED, M.with(job.marks, K.FOLLOWS)
  M.change(job, K.blocked, BLOCKED, '', cmsgpack.pack({ note = M.flight_cause(job) }))
  M.enter(job)
  M.save(job)
  M.urge(job, flight_of(job).by)
  return FOLLOWS
end

-- Decides what a queued job with a flight does: it has its result at once, follows the leader or leads. The event that
-- brought it here is recorded already.
function M.join(job)
  if job.state ~= QUEUED or not M.has(job.marks, K.FLIGHT) then return NEW end
  local entry = entry_of(flight_of(job).name)
  if entry and is_usable(entry) then
    complete(job, entry, 'cached')
    return CACHED
  end
  if entry and entry.known and not entry.landing then -- its time is over
    drop_entry(entry)
    entry = nil
  end
  local verdict = NEW
  if not entry then
    add_entry(job, job.seq)
  elseif entry.leader and entry.leader ~= job.seq then
    verdict = follow(job, entry)
  end
  if verdict == NEW then M.wake_work(M.queue_of(job.lane)) end
  return verdict
end

-- A job of a flight has completed: the flight has its result now, whoever leads it. If it has one already, the job keeps
-- its own.
function M.deliver(job, ran)
  if not M.has(job.marks, K.FLIGHT) then return end
  local flight = flight_of(job)
  local entry = entry_of(flight.name)
  if entry and (is_usable(entry) or (entry.known and entry.landing)) then return end
  if entry and entry.known then
    drop_entry(entry)
    entry = nil
  end
  entry = entry or add_entry(job, job.seq)
  local leader, result = entry.leader, M.has(job.marks, K.RESULT) and M.hget('result', job.seq) or false
  entry.leader, entry.known, entry.job, entry.parts, entry.ran = nil, true, job.id, flight.parts, ran
  entry.created, entry.used = now, now
  entry.till = flight.ttl < 0 and NONE or now + flight.ttl
  entry.size = result and (result:byte() == 0 and #result - 1 or (unpack_from('<I4', result, 2))) or 0
  if result then
    M.mark(job, K.RESULT, 'result', false)
    M.hset('computed', entry.number, result)
  end
  point(job, entry, '')
  M.save(job)
  if leader and leader ~= job.seq then
    local other = M.job_of(leader)
    if other and other.state < COMPLETED and other.state ~= RUNNING and M.has(other.marks, K.FLIGHT)
      and flight_of(other).name == flight.name then
      if other.needs then M.release_offers(other) end
      complete(other, entry, 'followed')
    end
  end
  land(entry)
  make_room(flight, entry)
end

-- Lets a job that a person runs again lead: its own result is not wanted any more.
function M.forget_result(job)
  local entry = M.release_result(job)
  if entry and entry.flight ~= '' then forget(entry) end
end

-- -- uncaching --------------------------------------------------------------------------------------------------------

-- The known results of a task or of all, in the order of their numbers. Those that are landing and may not be used are
-- forgotten already.
local function known_entries(task, limit)
  local tasks, found = task and { task } or call('HKEYS', P .. 'room'), {}
  for i = 1, #tasks do
    local from, n = 0, 0
    while n < limit do
      local numbers = call('ZRANGE', P .. 'known:' .. tasks[i], from, from + limit - 1)
      M.fetch('entry', numbers)
      for j = 1, #numbers do
        local entry = entry_at(numbers[j])
        if not entry.landing or is_usable(entry) then
          n = n + 1
          found[#found + 1] = entry
        end
      end
      if #numbers < limit then break end
      from = from + limit
    end
  end
  table.sort(found, function(one, other) return one.number < other.number end)
  for i = #found, limit + 1, -1 do found[i] = nil end
  return found
end

-- Forgets known results, up to a limit; returns how many, and whether there are more. What still has followers is
-- forgotten when they are completed.
function M.uncache(flights, task, limit)
  local found, dropped = {}, 0
  for i = 1, #flights do found[#found + 1] = entry_of(flights[i]) end
  if #flights == 0 then found = known_entries(task, limit + 1) end
  for i = 1, #found do
    local entry = found[i]
    if counts(entry) and (not task or task == entry.task) and (not entry.landing or is_usable(entry)) then
      if dropped == limit then return dropped, true end
      forget(entry)
      dropped = dropped + 1
    end
  end
  return dropped, false
end

-- Drops results that may not be used any more, up to a limit; returns how many.
function M.drop_lapsed(limit)
  local numbers = call('ZRANGEBYSCORE', P .. 'lapsing', '-inf', text(now), 'LIMIT', 0, limit)
  M.fetch('entry', numbers)
  for i = 1, #numbers do drop_entry(entry_at(numbers[i])) end
  return #numbers
end
