-- Keep leases alive, each only if its fence still holds.
local beats, seqs = {}, {}
for i = 1, number() do
  local beat = {}
  beat.seq, beat.fence, beat.lease_for, beat.alone, beat.parts = unpack_from('<c16ddBB', arg())
  if has(beat.parts, 1) then beat.checkpoint = arg() end
  if has(beat.parts, 2) then beat.progress, beat.tail = arg(), arg() end
  beats[i], seqs[i] = beat, beat.seq
end

begin()
fetch_jobs(seqs)
local answers = {}
for i = 1, #beats do
  local beat = beats[i]
  local job = job_of(beat.seq)
  if not job or job.state ~= RUNNING or job.fence ~= beat.fence then
    answers[i] = '0'
  else
    job.x, job.y = now + beat.lease_for, beat.lease_for
    zset('lease', job.seq, job.x)
    if beat.alone == 1 then job.flags = with(job.flags, ALONE) end
    if beat.alone == 0 then job.flags = without(job.flags, ALONE) end
    if beat.checkpoint then mark(job, CHECKPOINT, 'checkpoint', beat.checkpoint) end
    if beat.progress then
      mark(job, PROGRESS, 'progress', beat.progress)
      tell_feed(job.id, event(KIND.progress, NO_STATE, 0, NO_PRIORITY, job.n, NONE, NONE, NO_ATTEMPT,
        (unpack_from(HELD, job.holder)), beat.tail))
    end
    save(job)
    answers[i] = text(1 + (has(job.flags, CANCELLING) and 2 or 0) + (has(job.flags, SUSPENDING) and 4 or 0))
  end
end
finish_script()
return { text(server), table.concat(answers) }
