-- What every script begins with: the clock, the layer that gathers reads and writes, and how a job is kept.
--
-- KEYS[1]  the prefix of the namespace; every key is derived from it and so lives in its slot
-- ARGV[1]  the time, microseconds since 1970; empty is the server's own clock
-- ARGV[2]  what is added to the server's clock; 0 outside of tests
-- ARGV[3]  ... are the script's own
--
-- Numbers beyond 2^31 are doubles, exact below 2^53, and are never turned into text by tostring, which rounds them.
local call, P = redis.call, KEYS[1]
local pack, unpack_from, band = struct.pack, struct.unpack, bit.band
local META = P .. 'meta'

local clock = call('TIME')
local server = clock[1] * 1000000 + clock[2] + tonumber(ARGV[2])
local now = ARGV[1] == '' and server or tonumber(ARGV[1])

local position = 2
local function arg()
  position = position + 1
  return ARGV[position]
end
local function number()
  position = position + 1
  return tonumber(ARGV[position])
end

local function text(value) return string.format('%.0f', value) end
local function padded(seq) return string.format('%016.0f', seq) end

-- -- reading and writing, gathered ------------------------------------------------------------------------------------
-- Hashes are read and written through a cache, sets through a list of changes; `flush` writes both, in few commands.

local CHUNK = 500
local known, dirty, moved = {}, {}, {}

local function cache(name)
  local cached = known[name]
  if not cached then
    cached = {}
    known[name] = cached
  end
  return cached
end

local function fetch(name, fields)
  local cached, wanted, n = cache(name), {}, 0
  for i = 1, #fields do
    local field = fields[i]
    if cached[field] == nil then
      n = n + 1
      wanted[n] = field
    end
  end
  for from = 1, n, CHUNK do
    local to = math.min(from + CHUNK - 1, n)
    local found = call('HMGET', P .. name, unpack(wanted, from, to))
    for i = from, to do cached[wanted[i]] = found[i - from + 1] end
  end
  return cached
end

local function hget(name, field)
  local cached = cache(name)
  local value = cached[field]
  if value == nil then
    value = call('HGET', P .. name, field)
    cached[field] = value
  end
  return value
end

-- A value of false deletes.
local function hset(name, field, value)
  cache(name)[field] = value
  local changed = dirty[name]
  if not changed then
    changed = {}
    dirty[name] = changed
  end
  changed[#changed + 1] = field
end

-- A score of false removes.
local function zset(name, member, score)
  local changed = moved[name]
  if not changed then
    changed = {}
    moved[name] = changed
  end
  changed[member] = score
end

local function run(command, key, args, n)
  for from = 1, n, 2 * CHUNK do call(command, key, unpack(args, from, math.min(from + 2 * CHUNK - 1, n))) end
end

local function flush_hash(name, fields)
  local cached, puts, drops, p, d = known[name], {}, {}, 0, 0
  for i = 1, #fields do
    local field = fields[i]
    local value = cached[field]
    if value then
      puts[p + 1], puts[p + 2] = field, value
      p = p + 2
    else
      d = d + 1
      drops[d] = field
    end
  end
  run('HSET', P .. name, puts, p)
  run('HDEL', P .. name, drops, d)
end

local function flush_set(name, changed)
  local puts, drops, p, d = {}, {}, 0, 0
  for member, score in pairs(changed) do
    if score then
      puts[p + 1], puts[p + 2] = score, member
      p = p + 2
    else
      d = d + 1
      drops[d] = member
    end
  end
  run('ZADD', P .. name, puts, p)
  run('ZREM', P .. name, drops, d)
end

-- The first write of every script. Whatever can refuse a write (memory full, read-only replica, disk errors) refuses
-- this one, so no script is ever half applied. A clock that was set back is noted for the next reap.
local function begin()
  local before = call('HGET', META, 'time')
  call('HSET', META, 'time', text(server))
  if before and tonumber(before) > server + 1000000 then call('HSET', META, 'back', 1) end
end

-- -- codes, as in codes.py --------------------------------------------------------------------------------------------

local SCHEDULED, QUEUED, RUNNING, SUSPENDED, COMPLETED, FAILED, CANCELLED = 0, 2, 3, 4, 5, 6, 7
local EXPIRED = 4
local KIND = {
  submitted = 0, due = 1, started = 2, progress = 3, retrying = 4, released = 5, completed = 6, failed = 7,
  cancelled = 8, suspended = 9, resumed = 10, reprioritised = 11, expired = 12, shed = 13, lease_expired = 14,
  cancel_requested = 15, suspend_requested = 16, retried = 17, removed = 18, folded = 19,
}
local NO_STATE, NO_PRIORITY, NO_ATTEMPT, NONE = 255, 255, 4294967295, -1
local CANCELLING, SUSPENDING, REAPED, ALONE, CALLED = 1, 2, 4, 8, 16
local CHECKPOINT, FAILURE, NOTE, PROGRESS, RESULT, TIES, EXPIRY = 1, 2, 4, 8, 16, 32, 64
local STEADY, WALL = 1, 2
local FIFO = 9007199254740960

local function has(bits, one) return band(bits, one) ~= 0 end
local function with(bits, one) return band(bits, one) ~= 0 and bits or bits + one end
local function without(bits, one) return band(bits, one) ~= 0 and bits - one or bits end

-- -- lanes, settings and counts ---------------------------------------------------------------------------------------

local lane_names = {}

local function lane_of(queue, task)
  local name = 'lanes:' .. queue
  local lane = hget(name, task)
  if not lane then
    lane = text(call('HINCRBY', META, 'lane', 1))
    call('HSET', P .. name, task, lane)
    call('HSET', P .. 'lane', lane, pack('<Hc0', #queue, queue) .. task)
    cache(name)[task] = lane
  end
  return tonumber(lane)
end

local function queue_of(lane)
  local queue = lane_names[lane]
  if not queue then
    queue = unpack_from('<Hc0', hget('lane', text(lane)))
    lane_names[lane] = queue
  end
  return queue
end

local function lanes_of(queue)
  local found = call('HVALS', P .. 'lanes:' .. queue)
  for i = 1, #found do found[i] = tonumber(found[i]) end
  table.sort(found)
  return found
end

local settings_known = {}

local function settings_of(queue)
  local settings = settings_known[queue]
  if not settings then
    local packed = hget('settings', queue)
    if packed then
      local paused, aging, max_running, capacity, patience, weight = unpack_from('<BBdddd', packed)
      settings = {
        paused = paused == 1, aging = aging == 1, patience = patience, weight = weight,
        max_running = max_running >= 0 and max_running or nil, capacity = capacity >= 0 and capacity or nil,
      }
    else
      settings = { paused = false, aging = false, patience = 120000000, weight = 1 }
    end
    settings_known[queue] = settings
  end
  return settings
end

local tallies, running, unfinished = {}, {}, {}

local function tally(lane, priority, state, by)
  local cell = (lane * 16 + priority) * 8 + state
  tallies[cell] = (tallies[cell] or 0) + by
  if state < COMPLETED then
    unfinished[lane] = (unfinished[lane] or 0) + by
    if state == RUNNING then running[lane] = (running[lane] or 0) + by end
  end
end

local function add_counts(name, changes)
  for field, by in pairs(changes) do
    if by ~= 0 then
      field = text(field)
      if call('HINCRBY', P .. name, field, by) == 0 then call('HDEL', P .. name, field) end
    end
  end
end

-- How many jobs of a queue there are by this count, what this script did included.
local function counted(name, changes, queue)
  local lanes, sum = lanes_of(queue), 0
  if #lanes == 0 then return 0 end
  local fields = {}
  for i = 1, #lanes do fields[i] = text(lanes[i]) end
  local found = call('HMGET', P .. name, unpack(fields))
  for i = 1, #lanes do sum = sum + (tonumber(found[i] or 0) or 0) + (changes[lanes[i]] or 0) end
  return sum
end

local function score_of(settings, priority, arrived)
  if settings.aging then return math.min(arrived + priority * settings.patience, FIFO) end
  return priority == 0 and 0 or FIFO + priority
end

-- -- waking -----------------------------------------------------------------------------------------------------------

local topics, finals = {}, {}

local function wake_work(queue) topics['work:' .. queue] = true end

local function publish()
  for topic in pairs(topics) do call('PUBLISH', P .. 'wake:' .. topic, '') end
  if #finals > 0 then call('PUBLISH', P .. 'wake:job', table.concat(finals, '\n')) end
end

-- -- events -----------------------------------------------------------------------------------------------------------

local EVENT = '<BBBBI4dddI4Hc0I4c0'
local ROW = 500
local lines = {}

local function event(kind, state, reason, priority, n, run_at, fence, attempt, by, tail)
  return pack(EVENT, kind, state, reason, priority, n, now, run_at, fence, attempt, #by, by, #tail, tail)
end

local function tell_feed(id, line) lines[#lines + 1] = pack('<Hc0', #id, id) .. line end

-- A row of the feed is the time, how many events it holds, and the events.
local function flush_feed()
  local n = #lines
  if n == 0 then return end
  local first = call('HINCRBY', META, 'pos', math.ceil(n / ROW)) - math.ceil(n / ROW) + 1
  for from = 1, n, ROW do
    local to = math.min(from + ROW - 1, n)
    call('HSET', P .. 'feed', text(first + (from - 1) / ROW), pack('<dI4', now, to - from + 1) .. table.concat(lines, '', from, to))
  end
  lines = {}
  topics['events'] = true
end

-- Every 200 events from the 400th on, all but the latest 200 fold into one.
local function shortened(history, n)
  if n < 400 or n % 200 ~= 0 then return history end
  local starts, at, size = {}, 1, #history
  while at <= size do
    starts[#starts + 1] = at
    local by = unpack_from('<H', history, at + 36)
    at = at + 38 + by
    at = at + 4 + unpack_from('<I4', history, at)
  end
  local old = #starts - 200
  if old < 1 then return history end
  local state, reason, priority, fence, attempt, last_n, last_at = NO_STATE, 0, NO_PRIORITY, NONE, NO_ATTEMPT, 0, 0
  for i = 1, old do
    local _, s, r, p, event_n, event_at, _, f, a = unpack_from('<BBBBI4dddI4', history, starts[i])
    if s ~= NO_STATE then state, reason = s, r end
    if p ~= NO_PRIORITY then priority = p end
    if f ~= NONE then fence = f end
    if a ~= NO_ATTEMPT then attempt = a end
    last_n, last_at = event_n, event_at
  end
  local folded = pack(EVENT, KIND.folded, state, reason, priority, last_n, last_at, NONE, fence, attempt, 0, '', 0, '')
  return folded .. history:sub(starts[old + 1])
end

-- The end of every script that writes.
local function flush()
  for name, fields in pairs(dirty) do flush_hash(name, fields) end
  for name, changed in pairs(moved) do flush_set(name, changed) end
  add_counts('running', running)
  add_counts('unfinished', unfinished)
  dirty, moved, running, unfinished = {}, {}, {}, {}
end

local function finish_script()
  flush()
  add_counts('tally', tallies)
  flush_feed()
  publish()
end
