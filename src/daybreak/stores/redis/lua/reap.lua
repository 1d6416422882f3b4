-- Take over leases that had lapsed when the request was sent, which may be earlier than now: whatever delayed the request
-- may have delayed the holders' heartbeats, too.
local worker, asked, watched, limit, lease_for, even = arg(), number(), number(), number(), number(), number()
asked = math.min(asked, now)

-- The caller has seen the clock run evenly since `even`. An earlier report that overlaps is merged with it.
local function report_even_clock()
  local from, to = (call('HGET', META, 'even') or ''):match('^(%d+):(%d+)$')
  from, to = tonumber(from), tonumber(to)
  if from and even <= to and from <= now then
    even, to = math.min(even, from), math.max(to, now)
  else
    to = now
  end
  call('HSET', META, 'even', text(even) .. ':' .. text(to))
end

-- After the server's clock was set back: no lease lasts longer than its own length from now.
local function clamp()
  local from = 0
  while true do
    local seqs = call('ZRANGEBYSCORE', P .. 'lease', '(' .. text(now), '+inf', 'LIMIT', from, K.CHUNK)
    M.fetch('at', seqs)
    for i = 1, #seqs do
      local job = M.job_of(seqs[i])
      if job.x > now + job.y then
        job.x = now + job.y
        M.zset('lease', job.seq, job.x)
        M.save(job)
      end
    end
    if #seqs < K.CHUNK then break end
    from = from + K.CHUNK
  end
  call('HDEL', META, 'back')
  M.flush()
end

M.begin()
if is_own and even >= 0 then report_even_clock() end
if is_own and call('HGET', META, 'back') then clamp() end

local taken, from = {}, 0
while #taken < limit do
  local seqs = call('ZRANGEBYSCORE', P .. 'lease', '-inf', text(asked), 'LIMIT', from, K.CHUNK)
  M.fetch('at', seqs)
  for i = 1, #seqs do
    local job = M.job_of(seqs[i])
    if job.y <= watched and #taken < limit then taken[#taken + 1] = job end
  end
  if #seqs < K.CHUNK then break end
  from = from + K.CHUNK
end

local seqs, heads, jobs, checkpoints, groups = {}, {}, {}, {}, {}
for i = 1, #taken do
  local job = taken[i]
  job.fence = job.fence + 1
  job.flags = M.with(M.without(job.flags, K.CALLED), K.REAPED)
  local _, _, canceller = unpack_from(K.HELD, job.holder)
  job.holder = pack(K.HELD, #worker, worker, 0, '', #canceller, canceller)
  job.x, job.y = now + lease_for, lease_for
  M.zset('lease', job.seq, job.x)
  M.change(job, K.lease_expired, nil, worker, nil, nil, nil, job.fence)
  M.save(job)
  seqs[i], heads[i] = job.seq, known.at[job.seq]:sub(1, 60)
end
M.finish_script()
M.fetch('job', seqs)
for i = 1, #seqs do
  jobs[i] = known.job[seqs[i]]
  if M.has(taken[i].marks, K.CHECKPOINT) then checkpoints[#checkpoints + 1] = M.hget('checkpoint', seqs[i]) end
  if M.has(taken[i].flags, K.GROUPED) then groups[#groups + 1] = M.call_of(taken[i]) end
end
return { stamp, { seqs, heads, jobs, checkpoints, false, 0, groups } }
