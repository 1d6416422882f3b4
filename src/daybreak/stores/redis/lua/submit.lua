-- The fast path of the most frequent submission: new jobs of one kind, due now, without keys and names, into a queue with
-- fifo discipline and without capacity, with no resource that limits its waiting jobs. If anything is not plain it writes
-- nothing and returns false: then the general path is taken. A 1 after the false means that the settings of the queue or of
-- a resource are the reason, so that the next jobs of this queue need not try.
-- It has no prelude: defining functions would take longer than all the rest.
--
-- KEYS[1], ARGV[1], ARGV[2]  as in prelude.lua
-- queue, task, tail of the event, priority, keep_completed, keep_failed, packed needs; then id and packed spec of each job
local call, P, format = redis.call, KEYS[1], string.format
local meta, clock = P .. 'meta', call('TIME')
local found = call('HMGET', meta, 'time', 'seq', 'pos', 'clock', 'needs')
local offset, shown = tonumber(found[4] or 0), clock[1] * 1000000 + clock[2] + tonumber(ARGV[2])
local server = shown - offset
local is_wide = format('%d', 4503599627370496) == '4503599627370496' -- as in prelude.lua
local whole, padded = is_wide and '%d' or '%.0f', is_wide and '%016d' or '%016.0f'
local stamp = offset == 0 and format(whole, shown) or format(whole .. ':' .. whole, shown, offset)
if tonumber(found[5] or 0) > VERSION then return { stamp, false, 0 } end -- the general path returns the error
local now, wall = server, shown -- as in prelude.lua
if ARGV[1] ~= '' then
  if ARGV[1]:byte() ~= 126 then
    now = tonumber(ARGV[1])
    wall = now
  elseif math.abs(server - tonumber(ARGV[1]:sub(2))) > 5000000 then
    return { stamp }
  end
end
local queue, task, tail, priority = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local needs, count = ARGV[9], (#ARGV - 9) / 2

local lane, settings = call('HGET', P .. 'lanes:' .. queue, task), call('HGET', P .. 'settings', queue)
if not lane then return { stamp, false, 0 } end
if settings then
  local _, aging, _, capacity = unpack_from('<BBdd', settings)
  if aging == 1 or capacity >= 0 then return { stamp, false, 1 } end
end
local marks, needed = 0, ''
if needs ~= '' then
  marks, needed = 128, pack('<dHI4c0', -1, 0, #needs, needs)
  local _, _, _, at = unpack_from('<BdHc0', needs)
  while at <= #needs do
    local resource, _, past = unpack_from('<Hc0d', needs, at)
    local gauge = call('HGET', P .. 'gauge', resource)
    if gauge and unpack_from('<d', gauge) >= 0 then return { stamp, false, 1 } end
    at = past
  end
end
local ids, seen = {}, {}
for i = 1, count do
  local id = ARGV[8 + 2 * i]
  if seen[id] then return { stamp, false, 0 } end
  seen[id], ids[i] = true, id
end
local existing = call('HMGET', P .. 'id', unpack(ids))
for i = 1, count do
  if existing[i] then return { stamp, false, 0 } end
end

local ROW = 500 -- events in a row of the feed, as in prelude.lua
local before, last, pos = tonumber(found[1] or 0), tonumber(found[2] or 0), tonumber(found[3] or 0)
-- The first write, as in change_set.lua: if the server refuses writes, it refuses this one.
call('HSET', meta, 'time', format(whole, server), 'seq', format(whole, last + count), 'pos', format(whole, pos + math.ceil(count / ROW)))
if before > server + 1000000 then call('HSET', meta, 'back', 1) end

local rank = priority == 0 and 0 or 4503599627370464 + priority
local score = format(whole, rank)
local head, line = accepted(2, marks, priority, 0, tonumber(lane), rank, -1, wall, tail)
local prefix = pack('<ddd', wall, tonumber(ARGV[7]), tonumber(ARGV[8]))
local at, jobs, by_id, queued, all, rows, sizes = {}, {}, {}, {}, {}, {}, {}
for i = 1, count do
  local id, seq, a, b = ids[i], format(padded, last + i), 2 * i - 1, 2 * i
  local size = sizes[#id]
  if not size then
    size = pack('<H', #id)
    sizes[#id] = size
  end
  at[a], at[b] = seq, head .. size .. id .. '\0\0' .. needed
  jobs[a], jobs[b] = seq, prefix .. ARGV[9 + 2 * i]
  by_id[a], by_id[b] = id, seq
  queued[a], queued[b] = score, seq
  all[a], all[b] = seq, seq
  rows[3 * i - 2], rows[3 * i - 1], rows[3 * i] = size, id, line
end
call('HSET', P .. 'at', unpack(at))
call('HSET', P .. 'job', unpack(jobs))
call('HSET', P .. 'id', unpack(by_id))
call('ZADD', P .. 'queued:' .. lane, unpack(queued))
call('ZADD', P .. 'all:' .. lane, unpack(all))
local cell = tonumber(lane) * 16 + priority
call('HINCRBY', P .. 'tally', format(whole, cell * 8 + 2), count)
call('HINCRBY', P .. 'total', format(whole, cell), count)
for from = 1, count, ROW do
  local to = math.min(from + ROW - 1, count)
  pos = pos + 1
  local row = pack('<dI4', now, to - from + 1) .. table.concat(rows, '', 3 * from - 2, 3 * to)
  call('HSET', P .. 'feed', format(whole, pos), row)
end
call('PUBLISH', P .. 'wake:work:' .. queue, '')
call('PUBLISH', P .. 'wake:events', '')
return { stamp, { format(whole, last + 1), '\2', {} }, 0 }
