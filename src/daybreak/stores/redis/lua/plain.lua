-- The fast path of the most frequent exchange: jobs that completed at their first attempt, and a claim on one queue, of
-- jobs without stored parts whose resources are free and have no waiting jobs. It reads everything, then writes everything.
-- If anything is not plain it has written nothing and returns nil: then the rest of the script, the general path, runs. It
-- may refuse, it may never differ.
-- It comes before the prelude: defining the functions of the general path would take longer than all of this.
local flags = tonumber(ARGV[3])
if flags ~= 1 and flags ~= 16 and flags ~= 17 then return nil end
local call, P, argv, format, MAX_JOBS, ROW = redis.call, KEYS[1], ARGV, string.format, 500, 500
local QUEUED, RUNNING, COMPLETED = 2, 3, 5 -- these and all numbers below are as in prelude.lua
local p, meta, clock = 4, P .. 'meta', call('TIME')
local kept = call('HMGET', meta, 'time', 'pos', 'look', 'clock', 'needs', 'landing')
if tonumber(kept[5] or 0) > VERSION then return nil end -- the prelude returns the error
local offset, shown = tonumber(kept[4] or 0), clock[1] * 1000000 + clock[2] + tonumber(argv[2])
local server = shown - offset
local now, wall = server, shown
if argv[1] ~= '' then
  if argv[1]:byte() ~= 126 then
    now = tonumber(argv[1])
    wall = now
  elseif math.abs(server - tonumber(argv[1]:sub(2))) > 5000000 then
    return nil
  end
end
local whole = format('%d', 4503599627370496) == '4503599627370496' and '%d' or '%.0f'

-- -- the request, as in settle.lua and claim.lua ----------------------------------------------------------------------

local fates, runs, seqs, names, ended, results, result_args = {}, {}, {}, {}, 0, {}, 0
if flags ~= 16 then
  for i = 1, tonumber(argv[p]) do
    local state, reason, parts, attempt, lost, timeouts, fence, _, keep = unpack_from('<BBBI4I4I4ddd', argv[p + 1])
    if state ~= COMPLETED or parts > 1 or attempt ~= 1 or argv[p + 4] ~= 'completed' then return nil end
    fates[i] = {
      reason = reason, parts = parts, attempt = attempt, lost = lost, timeouts = timeouts, fence = fence, keep = keep,
      event = argv[p + 2], tail = argv[p + 3], known = {},
    }
    p = p + 4
  end
  p = p + 1
  for i = 1, tonumber(argv[p]) do
    local fate, count = fates[tonumber(argv[p + 1])], tonumber(argv[p + 2])
    if ended + count > MAX_JOBS then return nil end
    runs[i] = { fate = fate, before = ended, count = count, times = argv[p + 3] }
    p = p + 3
    for j = ended + 1, ended + count do
      seqs[j], names[j], p = argv[p + 1], argv[p + 2], p + 2
      if fate.parts == 1 then
        results[result_args + 1], results[result_args + 2] = seqs[j], argv[p + 1]
        result_args, p = result_args + 2, p + 1
      end
    end
    ended = ended + count
  end
  p = p + 1
end

local wakes_nobody, queue, worker, name, lane = {}, nil, nil, nil, nil
local leased, limit, lease_for, begins, taken = 0, 0, 0, 0, 0
if flags ~= 1 then
  worker, name, leased = argv[p], argv[p + 1], tonumber(argv[p + 2])
  limit, lease_for = tonumber(argv[p + 3]), tonumber(argv[p + 4])
  local tasks, lanes = tonumber(argv[p + 9]), {}
  begins = tonumber(argv[p + 5])
  if argv[p + 6] ~= '1' or leased >= 64 or limit < 1 or limit > MAX_JOBS or tasks < 1 or tasks > 100 then return nil end
  queue = argv[p + 7]
  local settings = call('HGET', P .. 'settings', queue)
  if settings then
    local paused, _, max_running = unpack_from('<BBd', settings)
    if paused == 1 or max_running >= 0 then return nil end
  end
  local found = call('HMGET', P .. 'lanes:' .. queue, unpack(argv, p + 10, p + 9 + tasks))
  for i = 1, tasks do
    if found[i] then lanes[#lanes + 1] = found[i] end
  end
  for i = 1, #lanes do
    local waiting = call('ZRANGE', P .. 'queued:' .. lanes[i], 0, #lanes == 1 and limit - 1 or 0)
    if #waiting > 0 then
      if lane then return nil end -- more than one lane has jobs: the general path merges them
      lane = lanes[i]
      if #lanes > 1 then waiting = call('ZRANGE', P .. 'queued:' .. lane, 0, limit - 1) end
      taken = #waiting
      for j = 1, taken do seqs[ended + j] = waiting[j] end
    end
    wakes_nobody[tonumber(lanes[i])] = true
  end
end

-- -- due jobs and resources -------------------------------------------------------------------------------------------

local found, first
local before, pos, look = tonumber(kept[1] or 0), tonumber(kept[2] or 0), kept[3] and tonumber(kept[3])
if queue then
  first = look
  for i, due in ipairs({ 'due:steady', 'due:wall' }) do
    local at = tonumber(call('ZRANGE', P .. due, 0, 0, 'WITHSCORES')[2])
    if at and i == 2 then at = at - wall + now end
    if at and (not first or at < first) then first = at end
  end
  if (first and first <= now) or kept[6] then return nil end -- also if flights have followers to look after
end

-- -- results ----------------------------------------------------------------------------------------------------------

local total = ended + taken
local written, event_lines, rows, event_count, seen = {}, {}, {}, 0, {}
local outcomes, sums, counted, purges, finals, starts = {}, {}, {}, {}, {}, {}
local function end_row()
  rows[#rows + 1] = pack('<dI4', now, event_count) .. table.concat(event_lines)
  event_lines, event_count = {}, 0
end

-- Whether the end of a job in this lane wakes no worker: its queue has no max_running.
local function ends_wake_nobody(number)
  if wakes_nobody[number] == nil then
    local packed = call('HGET', P .. 'lane', format(whole, number))
    local settings = packed and call('HGET', P .. 'settings', (unpack_from('<Hc0', packed)))
    local _, _, max_running = 0, 0, -1
    if settings then _, _, max_running = unpack_from('<BBd', settings) end
    wakes_nobody[number] = max_running < 0
  end
  return wakes_nobody[number]
end

-- -- resources, as in gauge.lua ---------------------------------------------------------------------------------------

local needs_counts, needed, counts = {}, nil, nil -- packed needs -> how many jobs take and give them back
local function count_needs(record, at)
  if not needed or record:sub(at, at + #needed - 1) ~= needed then -- most jobs have the same needs as the one before
    local since, on, packed = unpack_from('<dHI4c0', record, at)
    if since ~= -1 or on ~= 0 then return nil end
    needed, counts = pack('<dHI4c0', since, on, #packed, packed), needs_counts[packed] or { takes = 0, gives = 0 }
    needs_counts[packed] = counts
  end
  return counts
end

-- The new gauges, by name; nil if more than the number of used slots is to be considered.
local function gauges_after()
  local takes, gives, changed = {}, {}, {}
  for packed, one in pairs(needs_counts) do
    local flags, _, _, at = unpack_from('<BdHc0', packed)
    if band(flags, 1) ~= 0 then return nil end
    while at <= #packed do
      local resource, slots
      resource, slots, at = unpack_from('<Hc0d', packed, at)
      takes[resource] = (takes[resource] or 0) + one.takes * slots
      gives[resource] = (gives[resource] or 0) + one.gives * slots
    end
  end
  for resource, slots in pairs(takes) do
    local gauge = call('HGET', P .. 'gauge', resource)
    if not gauge then return nil end
    local max_waiting, used, waiting, shut_until, limit, every, _, probes, _, at, fence, _, _, kept_for, sparing_until =
      unpack_from('<dddddddddddBdc16dddd', gauge)
    used = used - gives[resource] + slots
    if waiting ~= 0 or shut_until > now or every ~= 0 or probes >= 0 or at >= 0 or fence ~= 0
      or kept_for ~= '0000000000000000' or sparing_until > now or used < 0 or (limit >= 0 and used > limit)
      or (used == 0 and limit < 0 and max_waiting < 0) then
      return nil
    end
    local last = #changed
    if last >= 2 * MAX_JOBS then return nil end -- more arguments than one call accepts
    changed[last + 1], changed[last + 2] = resource, gauge:sub(1, 8) .. pack('<d', used) .. gauge:sub(17)
  end
  return changed
end

-- -- each job ---------------------------------------------------------------------------------------------------------

if total > 0 then found = call('HMGET', P .. 'at', unpack(seqs)) end
for i = 1, #runs do
  local run = runs[i]
  local fate, known = run.fate, run.fate.known
  local purge = fate.keep >= 0 and format(whole, now + fate.keep)
  for j = run.before + 1, run.before + run.count do
    local seq = seqs[j]
    local record, id = found[j], names[j]
    local stop = 60 + #id
    if not record or seen[seq] or record:sub(61, stop) ~= id then return nil end
    seen[seq] = true
    local head = record:sub(1, 60)
    local outcome = known[head]
    if not outcome then
      local state, _, held, marks, priority, _, number, _, fence, n, _, _, _, _, started_at = unpack_from(HEAD, head)
      if state ~= RUNNING or fence ~= fate.fence or band(held, 65281) ~= 0 or band(marks, 65399) ~= 0
        or (n + 1) % 200 == 0 or not ends_wake_nobody(number) then
        return nil
      end
      local cell = number * 16 + priority
      outcome = { cell = cell, count = 0, needs_resources = band(marks, 128) ~= 0 }
      outcome.head, outcome.line = completed(fate, marks, priority, number, fence, n, started_at, now, wall)
      sums[cell] = sums[cell] or { completed = 0, ran = 0, first = 0, waited = 0, longest = 0 }
      known[head], outcomes[#outcomes + 1] = outcome, outcome
    end
    local low, high = record:byte(stop + 1, stop + 2)
    local past = stop + 3 + low + 256 * high
    if outcome.needs_resources then
      local counts_of_job = count_needs(record, past)
      if not counts_of_job then return nil end
      counts_of_job.gives = counts_of_job.gives + 1
    end
    written[2 * j - 1], written[2 * j] = seq, outcome.head .. id .. '\0\0' .. record:sub(past) .. outcome.line
    event_lines[2 * event_count + 1], event_lines[2 * event_count + 2] = id, outcome.line
    event_count = event_count + 1
    if event_count == ROW then end_row() end
    finals[j], counted[j], outcome.count = id, outcome.cell, outcome.count + 1
    if purge then
      local last = #purges
      purges[last + 1], purges[last + 2] = purge, seq
    end
  end
end

local heads, leases = {}, {}
if taken > 0 then
  local templates, number, score = {}, tonumber(lane), format(whole, now + lease_for)
  local holder = pack('<Hc0Hc0Hc0', #worker, worker, #name, name, 0, '')
  local held, by = pack('<Hc0', #holder, holder), pack('<Hc0I4c0', #worker, worker, 0, '')
  for i = 1, taken do
    local seq, record = seqs[ended + i], found[ended + i]
    if i == begins + 1 then templates, leased = {}, leased + 32 end -- jobs from here on are prefetched
    local head = record:sub(1, 60)
    local start = templates[head]
    if not start then
      local _, _, _, marks, priority, _, _, attempt, fence, n, lost, timeouts = unpack_from(HEAD, head)
      if band(marks, 65373) ~= 0 or (n + 1) % 200 == 0 or (band(marks, 128) ~= 0 and attempt > 0) then return nil end
      start = { cell = number * 16 + priority, count = 0, needs_resources = band(marks, 128) ~= 0 }
      start.head, start.line =
        started(leased, marks, priority, number, attempt, fence, n, lost, timeouts, now, wall, lease_for, by)
      templates[head], starts[#starts + 1] = start, start
    end
    local low, high = record:byte(61, 62)
    local stop = 62 + low + 256 * high
    local id, at = record:sub(61, stop), 2 * (ended + i)
    if start.needs_resources then
      local counts_of_job = count_needs(record, stop + 3)
      if not counts_of_job then return nil end
      counts_of_job.takes = counts_of_job.takes + 1
    end
    written[at - 1], written[at] = seq, start.head .. id .. held .. record:sub(stop + 3) .. start.line
    event_lines[2 * event_count + 1], event_lines[2 * event_count + 2] = id, start.line
    event_count = event_count + 1
    if event_count == ROW then end_row() end
    heads[i], leases[2 * i - 1], leases[2 * i] = start.head, score, seq
    start.count = start.count + 1
  end
end
if event_count > 0 then end_row() end
local gauges = needed and gauges_after()
if needed and not gauges then return nil end

-- -- writing ----------------------------------------------------------------------------------------------------------

-- The first write, as in change_set.lua: if the server refuses writes, it refuses this one.
if #rows > 0 then
  call('HSET', meta, 'time', format(whole, server), 'pos', format(whole, pos + #rows))
else
  call('HSET', meta, 'time', format(whole, server))
end
if before > server + 1000000 then call('HSET', meta, 'back', 1) end
if total > 0 then call('HSET', P .. 'at', unpack(written)) end
if gauges then call('HSET', P .. 'gauge', unpack(gauges)) end
-- Before leases are removed: a set that becomes empty would be created again in the encoding of small sets, which is slow.
if taken > 0 then call('ZADD', P .. 'lease', unpack(leases)) end
if ended > 0 then
  call('ZREM', P .. 'lease', unpack(seqs, 1, ended))
  if #purges > 0 then call('ZADD', P .. 'purge', unpack(purges)) end
  if result_args > 0 then call('HSET', P .. 'result', unpack(results)) end
  for i = 1, #runs do
    local run = runs[i]
    local sum, has_one_sum = sums[counted[run.before + 1]], true
    if #outcomes > 1 then
      for j = run.before + 2, run.before + run.count do has_one_sum = has_one_sum and counted[j] == counted[j - 1] end
    end
    if has_one_sum then -- use the client's sums
      local ran, longest, first_ones, waited = unpack_from('<dddd', run.times)
      sum.completed, sum.ran, sum.first = sum.completed + run.count, sum.ran + ran, sum.first + first_ones
      sum.waited, sum.longest = sum.waited + waited, math.max(sum.longest, longest)
    end
    for j = 1, has_one_sum and 0 or run.count do
      local ran = unpack_from('<d', run.times, 25 + 8 * j)
      local waited = unpack_from('<d', run.times, 25 + 8 * (run.count + j))
      sum = sums[counted[run.before + j]]
      sum.completed, sum.ran, sum.longest = sum.completed + 1, sum.ran + ran, math.max(sum.longest, ran)
      if waited >= 0 then sum.first, sum.waited = sum.first + 1, sum.waited + waited end
    end
  end
  for cell, sum in pairs(sums) do
    local field = format(whole, cell) .. ':'
    local completed, ran, first_ones, waited, batches, last, last_ran = 0, 0, 0, 0, 0, 0, 0
    local existing = call('HGET', P .. 'total', field)
    if existing then completed, ran, first_ones, waited, batches, last, last_ran = unpack_from('<ddddddd', existing) end
    if wall > last then
      last, last_ran = wall, sum.longest
    elseif wall == last then
      last_ran = math.max(last_ran, sum.longest)
    end
    call('HSET', P .. 'total', field, pack('<ddddddd', completed + sum.completed, ran + sum.ran,
      first_ones + sum.first, waited + sum.waited, batches + 1, last, last_ran))
  end
end
local jobs, taken_seqs = {}, {}
if taken > 0 then
  call('ZREMRANGEBYRANK', P .. 'queued:' .. lane, 0, taken - 1)
  jobs = call('HMGET', P .. 'job', unpack(seqs, ended + 1, total))
  for i = 1, taken do taken_seqs[i] = seqs[ended + i] end
end
local cells = {}
local function tally(cell, state, by) cells[cell * 8 + state] = (cells[cell * 8 + state] or 0) + by end
for i = 1, #outcomes do
  tally(outcomes[i].cell, RUNNING, -outcomes[i].count)
  tally(outcomes[i].cell, COMPLETED, outcomes[i].count)
end
for i = 1, #starts do
  tally(starts[i].cell, QUEUED, -starts[i].count)
  tally(starts[i].cell, RUNNING, starts[i].count)
end
for cell, by in pairs(cells) do
  if by ~= 0 and call('HINCRBY', P .. 'tally', format(whole, cell), by) == 0 then
    call('HDEL', P .. 'tally', format(whole, cell))
  end
end
for i = 1, #rows do call('HSET', P .. 'feed', format(whole, pos + i), rows[i]) end
if #rows > 0 then call('PUBLISH', P .. 'wake:events', '') end
if ended > 0 then call('PUBLISH', P .. 'wake:job', table.concat(finals)) end

local wait = taken < limit and first and format(whole, first - now) or false
return {
  offset == 0 and format(whole, shown) or format(whole .. ':' .. whole, shown, offset), string.rep('1', ended), false, {},
  queue and { taken_seqs, heads, jobs, {}, wait, taken == limit and 1 or 0 } or false,
}
