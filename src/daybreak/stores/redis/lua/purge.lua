-- Purge: delete what has been kept long enough, a bounded number at a time.
local limit, events_for, keys_for = number(), number(), number()
local adopted = {} -- id and revision of jobs that another store has taken over
for i = 1, number() do adopted[i] = { arg(), number() } end

M.begin()
local gone = {}
for i = 1, #adopted do
  local seq = M.hget('id', adopted[i][1])
  local job = seq and M.job_of(seq)
  gone[i] = '0'
  if job and job.state ~= RUNNING and job.n == adopted[i][2] then
    M.drop(job, keys_for, true)
    gone[i] = '1'
  end
end
M.flush()

local old = call('ZRANGEBYSCORE', P .. 'purge', '-inf', text(now), 'LIMIT', 0, limit)
M.fetch('at', old)
for i = 1, #old do M.drop(M.job_of(old[i]), keys_for) end
M.flush()

-- In the order of commits, so that a clock that was set back leaves no gap. Positions continue when the feed is empty.
local last = tonumber(call('HGET', META, 'pos') or 0)
local first = tonumber(call('HGET', META, 'first') or 1)
local rows, events, past, bytes = 0, 0, first, 0
while past <= last and rows < limit and bytes < 4000000 do
  local row = call('HGET', P .. 'feed', text(past))
  bytes = bytes + #row
  local event_count, n = unpack_from('<dI4', row)
  if event_count > now - events_for then break end
  call('HDEL', P .. 'feed', text(past))
  rows, events, past = rows + 1, events + n, past + 1
end
if past ~= first then call('HSET', META, 'first', text(past)) end

local keys = call('ZRANGEBYSCORE', P .. 'dropped', '-inf', text(now), 'LIMIT', 0, limit)
for i = 1, #keys do
  M.hset('key', keys[i], false)
  M.zset('dropped', keys[i], false)
end
local lapsed = call('EXISTS', P .. 'lapsing') == 1 and M.drop_lapsed(limit) or 0
if next(freed) then M.offer_freed() end
M.finish_script()
return { stamp, table.concat(gone), #old, events, #keys, (#old >= limit or rows >= limit or bytes >= 4000000 or lapsed >= limit) and 1 or 0 }
