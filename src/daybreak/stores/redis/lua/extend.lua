-- Extend leases, each only if its fence still matches and the id is that of the job, as in settle.lua; an empty id matches
-- any job.
local beats, seqs = {}, {}
for i = 1, number() do
  local beat = {}
  beat.seq, beat.fence, beat.lease_for, beat.flags, beat.parts = unpack_from('<c16ddBB', arg())
  beat.id = arg()
  if M.has(beat.parts, 1) then beat.checkpoint = arg() end
  if M.has(beat.parts, 2) then beat.progress, beat.tail = arg(), arg() end
  beat.detach = M.has(beat.parts, 4)
  if beat.detach then beat.by = arg() end
  beats[i], seqs[i] = beat, beat.seq
end

-- The attempt goes on elsewhere: the lease, which was extended to its deadline, belongs to no worker any more. A job that is
-- being cancelled ends here: nobody else could stop it.
local function detach(job, by)
  local worker, _, canceller = unpack_from(K.HELD, job.holder)
  local is_new = not M.has(job.flags, K.DETACHED)
  if M.has(job.flags, K.CANCELLING) then
    M.finish(job, CANCELLED, canceller, K.cancelled)
    return
  end
  job.flags = M.with(M.without(M.without(M.without(job.flags, K.CALLED), K.ALONE), K.AHEAD), K.DETACHED)
  job.holder = pack(K.HELD, #worker, worker, 0, '', #canceller, canceller)
  if is_new then M.count(job.lane, job.priority, 'detached', 1, 0) end
  if is_new or by ~= '' then M.change(job, K.detached, nil, by == '' and worker or by, nil, nil, wall + job.y) end
  M.save(job)
end

M.begin()
M.fetch('at', seqs)
local answers = {}
for i = 1, #beats do
  local beat = beats[i]
  local job = M.job_of(beat.seq)
  if not job or job.state ~= RUNNING or job.fence ~= beat.fence or (beat.id ~= '' and job.id ~= beat.id) then
    answers[i] = '0'
  elseif M.has(job.flags, K.DETACHED) and not beat.detach then
    answers[i] = '0' -- a late heartbeat of the worker that has given it up
  else
    job.x, job.y = now + beat.lease_for, beat.lease_for
    M.zset('lease', job.seq, job.x)
    local alone, begun = beat.flags % 4, math.floor(beat.flags / 4) -- 1 yes, 0 no, 2 unchanged
    if alone == 1 then job.flags = M.with(job.flags, K.ALONE) end
    if alone == 0 then job.flags = M.without(job.flags, K.ALONE) end
    if begun == 1 then job.flags = M.without(job.flags, K.AHEAD) end
    if begun == 0 then job.flags = M.with(job.flags, K.AHEAD) end
    if beat.checkpoint then M.mark(job, K.CHECKPOINT, 'checkpoint', beat.checkpoint) end
    if beat.progress then
      M.mark(job, K.PROGRESS, 'progress', beat.progress)
      M.add_to_feed(job.id, M.event(K.progress, NO_STATE, 0, NO_PRIORITY, job.n, NONE, NONE, NO_ATTEMPT,
        (unpack_from(K.HELD, job.holder)), beat.tail))
    end
    M.save(job)
    answers[i] = text(1 + (M.has(job.flags, K.CANCELLING) and 2 or 0) + (M.has(job.flags, K.SUSPENDING) and 4 or 0))
    if beat.detach then detach(job, beat.by) end
  end
end
if next(freed) then M.offer_freed() end
M.finish_script()
return { stamp, table.concat(answers) }
