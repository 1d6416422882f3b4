-- Results that may be used now, most recently used first: of a task or of all, or those of some flights. Or, with their
-- results, all entries in the order of their numbers.
--
-- used, number  the cursor: the last entry of the page before; empty: the start
local ENTRY = '<c16BddddddddHc0' -- as in flight.lua
local IS_KNOWN, PIECE = 1, 500
local has_results, task, last_used, last_number, limit = number() == 1, arg(), arg(), arg(), number()
local flights = {}
for i = 1, number() do flights[i] = arg() end

local found = {}
-- Adds an entry if it belongs to a later page.
local function add(id, packed)
  if not packed then return end
  local _, flags, _, _, used, till, _, _, _, _, flight, at = unpack_from(ENTRY, packed)
  if not M.has(flags, IS_KNOWN) or flight == '' then return end
  if task ~= '' and task ~= unpack_from('<Hc0', packed, at) then return end
  if has_results then
    if id > last_number then found[#found + 1] = { -tonumber(id), id, packed } end
    return
  end
  if till ~= NONE and till <= now then return end
  if last_used == '' or used < tonumber(last_used) or (used == tonumber(last_used) and id < last_number) then
    found[#found + 1] = { used, id, packed }
  end
end

-- Adds entries of a task until there is one more than a page has.
local function add_of(name)
  local before, from = #found, 0
  if has_results then
    local numbers = call('ZRANGEBYSCORE', P .. 'known:' .. name, last_number == '' and '-inf' or '(' .. last_number, '+inf',
      'LIMIT', 0, limit + 1)
    local packed = M.fetch('entry', numbers)
    for i = 1, #numbers do add(numbers[i], packed[numbers[i]]) end
    return
  end
  while #found - before <= limit do
    local numbers = call('ZREVRANGEBYSCORE', P .. 'used:' .. name, last_used == '' and '+inf' or last_used, '-inf',
      'LIMIT', from, PIECE)
    local packed = M.fetch('entry', numbers)
    for i = 1, #numbers do add(numbers[i], packed[numbers[i]]) end
    if #numbers < PIECE then return end
    from = from + PIECE
  end
end

if #flights > 0 then
  local numbers, seen = M.fetch('flight', flights), {}
  for i = 1, #flights do
    local id = numbers[flights[i]]
    if id and not seen[id] then
      seen[id] = true
      add(id, M.hget('entry', id))
    end
  end
elseif task ~= '' then
  add_of(task)
else
  local tasks = call('HKEYS', P .. 'room')
  for i = 1, #tasks do add_of(tasks[i]) end
end
table.sort(found, function(one, other)
  if one[1] ~= other[1] then return one[1] > other[1] end
  return one[2] > other[2]
end)
local entries = {}
for i = 1, math.min(limit, #found) do
  entries[i] = { found[i][2], found[i][3], has_results and M.hget('computed', found[i][2]) }
end
return { stamp, entries, #found > limit and 1 or 0 }
