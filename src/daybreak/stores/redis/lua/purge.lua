-- Retention: what has been kept long enough goes, a bounded chunk at a time.
local limit, events_for, keys_for = number(), number(), number()
local wanted = {}
for i = 1, number() do wanted[i] = { arg(), number() } end

begin()
local forwarded = {}
for i = 1, #wanted do
  local job = job_of(wanted[i][1])
  if job and job.state == RUNNING and job.fence == wanted[i][2] then
    drop(job)
    forwarded[i] = '1'
  else
    forwarded[i] = '0'
  end
end
flush()

local old = call('ZRANGEBYSCORE', P .. 'purge', '-inf', text(now), 'LIMIT', 0, limit)
fetch_jobs(old)
for i = 1, #old do drop(job_of(old[i])) end
flush()

-- By order of commit, so that a clock set back tears no hole. Positions go on when the feed is empty.
local last = tonumber(call('HGET', META, 'pos') or 0)
local first = tonumber(call('HGET', META, 'first') or 1)
local rows, events, past = 0, 0, first
while past <= last and rows < limit do
  local row = call('HGET', P .. 'feed', text(past))
  local told, n = unpack_from('<dI4', row)
  if told > now - events_for then break end
  call('HDEL', P .. 'feed', text(past))
  rows, events, past = rows + 1, events + n, past + 1
end
if past ~= first then call('HSET', META, 'first', text(past)) end

local keys = call('ZRANGEBYSCORE', P .. 'dropped', '-inf', text(now - keys_for), 'LIMIT', 0, limit)
for i = 1, #keys do
  hset('key', keys[i], false)
  zset('dropped', keys[i], false)
end
finish_script()
return { text(server), table.concat(forwarded), #old, events, #keys, (#old >= limit or rows >= limit) and 1 or 0 }
