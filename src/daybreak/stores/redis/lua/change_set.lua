-- The change set, on which all parts are built: cached reads, collected writes, lanes, counts, topics and events.

function M.has(bits, one) return band(bits, one) ~= 0 end
function M.with(bits, one) return band(bits, one) ~= 0 and bits or bits + one end
function M.without(bits, one) return band(bits, one) ~= 0 and bits - one or bits end

-- -- cached reads and collected writes --------------------------------------------------------------------------------
-- Hashes are read and written through a cache, sets through a list of changes. `flush` writes both in few commands.

local function in_table(tables, name)
  local found = tables[name]
  if not found then
    found = {}
    tables[name] = found
  end
  return found
end

function M.cache(name) return in_table(known, name) end
function M.changes(name) return in_table(dirty, name) end
function M.moves(name) return in_table(moved, name) end

function M.fetch(name, fields)
  local cached, wanted, n = in_table(known, name), {}, 0
  for i = 1, #fields do
    local field = fields[i]
    if cached[field] == nil then
      n = n + 1
      wanted[n] = field
    end
  end
  for from = 1, n, K.CHUNK do
    local to = math.min(from + K.CHUNK - 1, n)
    local found = call('HMGET', P .. name, unpack(wanted, from, to))
    for i = from, to do cached[wanted[i]] = found[i - from + 1] end
  end
  return cached
end

function M.hget(name, field)
  local cached = in_table(known, name)
  local value = cached[field]
  if value == nil then
    value = call('HGET', P .. name, field)
    cached[field] = value
  end
  return value
end

-- A value of false deletes the field.
function M.hset(name, field, value)
  in_table(known, name)[field] = value
  local changed = in_table(dirty, name)
  changed[#changed + 1] = field
end

-- A score of false removes the member.
function M.zset(name, member, score)
  in_table(moved, name)[member] = score and text(score)
end

function M.first_of(name)
  local first = call('ZRANGE', P .. name, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2]) or nil
end

-- Runs a command with many arguments, in as many calls as needed.
function M.run(command, name, args)
  local n, key = #args, P .. name
  for from = 1, n, 2 * K.CHUNK do
    call(command, key, unpack(args, from, math.min(from + 2 * K.CHUNK - 1, n)))
  end
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
  M.run('HSET', name, puts)
  M.run('HDEL', name, drops)
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
  M.run('ZADD', name, puts)
  M.run('ZREM', name, drops)
end

function M.flush()
  for name, fields in pairs(dirty) do flush_hash(name, fields) end
  for name, changed in pairs(moved) do flush_set(name, changed) end
  dirty, moved = {}, {}
end

-- Writes the changes of one hash or set alone: others may still be referred to, see insert.lua and claim.lua.
function M.flush_only(name)
  local fields, changed = dirty[name], moved[name]
  dirty[name], moved[name] = nil, nil
  if fields then flush_hash(name, fields) end
  if changed then flush_set(name, changed) end
end

-- The first write of every script. If the server refuses writes (memory full, read-only replica, disk errors), it refuses
-- this one, so no script is ever half applied. A clock that was set back is noted for the next reap.
function M.begin()
  local found = call('HMGET', META, 'time', 'look', 'landing')
  local before = found[1]
  looks.first, looks.landing = found[2] and tonumber(found[2]) or nil, found[3]
  call('HSET', META, 'time', text(server))
  if before and tonumber(before) > server + 1000000 then call('HSET', META, 'back', 1) end
end

-- -- lanes, settings and counts ---------------------------------------------------------------------------------------

function M.lane_of(queue, task)
  local name = 'lanes:' .. queue
  local lane = M.hget(name, task)
  if not lane then
    lane = text(call('HINCRBY', META, 'lane', 1))
    call('HSET', P .. name, task, lane)
    call('HSET', P .. 'lane', lane, pack('<Hc0', #queue, queue) .. task)
    known[name][task] = lane
  end
  lane = tonumber(lane)
  queues[lane] = queue
  return lane
end

function M.queue_of(lane)
  local queue = queues[lane]
  if not queue then
    queue = unpack_from('<Hc0', M.hget('lane', text(lane)))
    queues[lane] = queue
  end
  return queue
end

function M.lanes_of(queue)
  local found = call('HVALS', P .. 'lanes:' .. queue)
  for i = 1, #found do found[i] = tonumber(found[i]) end
  table.sort(found)
  return found
end

function M.settings_of(queue)
  local settings = settings_known[queue]
  if not settings then
    local packed = M.hget('settings', queue)
    if packed then
      local paused, aging, max_running, capacity, patience, weight, sheds = unpack_from('<BBddddB', packed)
      settings = {
        paused = paused == 1, aging = aging == 1, patience = patience, weight = weight, sheds = sheds == 1,
        max_running = max_running >= 0 and max_running or nil, capacity = capacity >= 0 and capacity or nil,
      }
    else
      settings = { paused = false, aging = false, patience = 120000000, weight = 1 }
    end
    settings_known[queue] = settings
  end
  return settings
end

function M.forget_settings(queue) settings_known[queue] = nil end

function M.score_of(settings, priority, arrived)
  if settings.aging then return math.min(arrived + priority * settings.patience, K.FIFO) end
  return priority == 0 and 0 or K.FIFO + priority
end

-- A field of `tally` is a lane, a priority and a state, in one number.
function M.tally(lane, priority, state, by)
  local cell = (lane * 16 + priority) * 8 + state
  tallies[cell] = (tallies[cell] or 0) + by
end

-- How many jobs of a queue are in the states from `low` to `high`, including the changes of this script.
function M.counted(queue, low, high)
  local cells = stored[queue .. low]
  if not cells then
    cells = {}
    local lanes = M.lanes_of(queue)
    for i = 1, #lanes do
      for priority = 0, 10 do
        for state = low, high do cells[#cells + 1] = (lanes[i] * 16 + priority) * 8 + state end
      end
    end
    cells.sum = 0
    for from = 1, #cells, K.CHUNK do
      local fields = {}
      for i = from, math.min(from + K.CHUNK - 1, #cells) do fields[#fields + 1] = text(cells[i]) end
      local found = call('HMGET', P .. 'tally', unpack(fields))
      for i = 1, #found do cells.sum = cells.sum + (found[i] and tonumber(found[i]) or 0) end
    end
    stored[queue .. low] = cells
  end
  local sum = cells.sum
  for cell, by in pairs(tallies) do
    local state = cell % 8
    if state >= low and state <= high and M.queue_of(math.floor(cell / 128)) == queue then sum = sum + by end
  end
  return sum
end

local function flush_tallies()
  for cell, by in pairs(tallies) do
    if by ~= 0 then
      local field = text(cell)
      if call('HINCRBY', P .. 'tally', field, by) == 0 then call('HDEL', P .. 'tally', field) end
    end
  end
end

-- -- waking -----------------------------------------------------------------------------------------------------------

function M.wake(topic) topics[topic] = true end
function M.wake_work(queue) topics['work:' .. queue] = true end

local function publish()
  for topic in pairs(topics) do call('PUBLISH', P .. 'wake:' .. topic, '') end
  if #finals > 0 then call('PUBLISH', P .. 'wake:job', table.concat(finals)) end
end

-- -- events -----------------------------------------------------------------------------------------------------------

function M.event(kind, state, reason, priority, n, run_at, fence, attempt, by, tail)
  return pack('<BBBBI4dddI4Hc0I4c0', kind, state, reason, priority, n, wall, run_at, fence, attempt, #by, by, #tail, tail)
end

function M.add_to_feed(id, line)
  event_lines[#event_lines + 1] = pack('<Hc0', #id, id) .. line
  event_count = event_count + 1
  if event_count % K.ROW == 0 then M.end_row() end
end

-- A row of the feed is the time, the number of events, and the events. Its size is bounded.
function M.end_row()
  if event_count == 0 then return end
  local row = pack('<dI4', now, event_count) .. table.concat(event_lines)
  call('HSET', P .. 'feed', text(call('HINCRBY', META, 'pos', 1)), row)
  event_lines, event_count = {}, 0
  topics['events'] = true
end

-- From the 400th event on, every 200 events: fold all but the latest 200 into one. The first event stays if it is stored.
function M.shortened(history, n)
  if n < 400 or n % 200 ~= 0 then return history end
  local starts, at, size = {}, 1, #history
  while at <= size do
    starts[#starts + 1] = at
    local by = unpack_from('<H', history, at + 36)
    at = at + 38 + by
    at = at + 4 + unpack_from('<I4', history, at)
  end
  local old, from = #starts - 200, history:byte(1) == K.submitted and 2 or 1
  if old < from then return history end
  local state, reason, priority, fence, attempt, last_n, last_at = NO_STATE, 0, NO_PRIORITY, NONE, NO_ATTEMPT, 0, 0
  for i = from, old do
    local _, s, r, p, event_n, event_at, _, f, a = unpack_from('<BBBBI4dddI4', history, starts[i])
    if s ~= NO_STATE then state, reason = s, r end
    if p ~= NO_PRIORITY then priority = p end
    if f ~= NONE then fence = f end
    if a ~= NO_ATTEMPT then attempt = a end
    last_n, last_at = event_n, event_at
  end
  local folded = pack('<BBBBI4dddI4Hc0I4c0', K.folded, state, reason, priority, last_n, last_at, NONE, fence, attempt,
    0, '', 0, '')
  return history:sub(1, starts[from] - 1) .. folded .. history:sub(starts[old + 1])
end

-- The packed size of a name, which comes before the name in rows.
local sizes = {}
function M.size_of(name)
  local n = #name
  local size = sizes[n]
  if not size then
    size = pack('<H', n)
    sizes[n] = size
  end
  return size
end

-- The end of every script that writes.
function M.finish_script()
  if next(gauges) then M.write_gauges() end
  M.write_flights()
  if next(totals) then M.write_totals() end
  M.flush()
  flush_tallies()
  M.end_row()
  publish()
end

-- Writes what has changed in the cache, if this script has used it.
function M.write_flights()
  local write = rawget(M, 'write_entries')
  if write then write() end
end

function M.have(part)
  local define = parts[part]
  if define then
    parts[part] = nil
    define()
  end
end

-- The functions of job.lua, gauge.lua, resource_queue.lua and flight.lua are defined when the first of them is used.
local function found_in(part, name)
  M.have(part)
  return rawget(M, name)
end

setmetatable(M, { __index = function(_, name)
  return found_in('job', name) or found_in('gauge', name) or found_in('resource_queue', name) or found_in('flight', name)
end })
