-- A batch of a listing: the next candidates of some sets after a cursor, merged.
--
-- descending  newest first, by seq; else in the order of the sets
-- score, seq  the cursor; empty: the start
-- states, reason, priority: the part of the filter that needs no unpacking of the spec
parts.whole()
local descending, score, seq = number() == 1, arg(), arg()
local states, reason, priority, limit = arg(), number(), number(), number()
local sets = {}
for i = 1, number() do sets[i] = arg() end

-- The queued jobs from a place on that may have the priority of the filter: those with aging, whose scores tell nothing of
-- it, and those that have its score. So a listing does not read the more urgent ones.
local function of_priority(name, low)
  local function up_to(bound) return call('ZCOUNT', name, '-inf', bound) end
  local found, own = {}, text(K.FIFO + priority)
  for _, part in ipairs({ { up_to(0), up_to(text(K.FIFO)) }, { up_to('(' .. own), up_to(own) } }) do
    local first = math.max(low, part[1])
    local last = math.min(part[2], first + limit - #found / 2) - 1
    local members = first <= last and call('ZRANGE', name, first, last, 'WITHSCORES') or {}
    for i = 1, #members do found[#found + 1] = members[i] end
  end
  return found
end

-- The first `limit` members of one set after the cursor. Members with the cursor's score are compared by their text.
local function behind(name)
  if name == 'lease' then -- sorted by the end of the lease, and never large
    local found, pairs_ = call('ZRANGE', P .. name, 0, -1), {}
    for i = 1, #found do
      if seq == '' or found[i] < seq then
        pairs_[#pairs_ + 1] = found[i]
        pairs_[#pairs_ + 1] = found[i]
      end
    end
    return pairs_
  end
  if descending then
    local from = seq == '' and '+inf' or '(' .. seq
    return call('ZREVRANGEBYSCORE', P .. name, from, '-inf', 'WITHSCORES', 'LIMIT', 0, limit)
  end
  local low = 0
  if score ~= '' then
    local high = call('ZCOUNT', P .. name, '-inf', score)
    low = call('ZCOUNT', P .. name, '-inf', '(' .. score)
    while low < high do
      local middle = math.floor((low + high) / 2)
      if call('ZRANGE', P .. name, middle, middle)[1] <= seq then low = middle + 1 else high = middle end
    end
  end
  if priority > 0 and name:sub(1, 7) == 'queued:' then return of_priority(P .. name, low) end
  return call('ZRANGE', P .. name, low, low + limit - 1, 'WITHSCORES')
end

local found = {}
for i = 1, #sets do
  local part = behind(sets[i])
  for j = 1, #part, 2 do found[#found + 1] = { tonumber(part[j + 1]), part[j], part[j + 1] } end
end
table.sort(found, function(a, b)
  if a[1] ~= b[1] then return (a[1] < b[1]) ~= descending end
  if a[2] == b[2] then return false end
  return (a[2] < b[2]) ~= descending
end)

local seqs, n = {}, math.min(limit, #found)
for i = 1, n do seqs[i] = found[i][2] end
M.fetch('at', seqs)
local answers, matching = {}, {}
for i = 1, n do
  local record = known.at[seqs[i]]
  if record and (states == '' or states:find(text(record:byte(1)), 1, true)) and (reason < 0 or reason == record:byte(2))
    and (priority < 0 or priority == record:byte(7)) then
    matching[#matching + 1] = i
  end
end
local chosen = {}
for i = 1, #matching do chosen[i] = seqs[matching[i]] end
M.fetch('job', chosen)
for i = 1, #matching do
  local at = matching[i]
  answers[i] = { found[at][3], M.whole(seqs[at]) }
end
-- How many candidates were examined, the position of the last, and those that match.
return { stamp, n, n > 0 and found[n][3] or '', n > 0 and seqs[n] or '', answers }
