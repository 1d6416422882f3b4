-- Settle: write the fate of leases, each only if its fence still holds.

local SETTLEMENT = '<c16BBBI4I4I4ddd'
local HAS_RESULT, HAS_FAILURE, HAS_CHECKPOINT, HAS_NOTE = 1, 2, 4, 8

-- What is written of an outcome, then its parts that are there, then the first and the last part of its event.
local function read_settlements()
  local settlements, seqs = {}, {}
  for i = 1, number() do
    local said = {}
    said.seq, said.state, said.reason, said.parts, said.attempt, said.lost, said.timeouts, said.fence, said.delay,
      said.keep = unpack_from(SETTLEMENT, arg())
    said.event, said.tail = arg(), arg()
    if has(said.parts, HAS_RESULT) then said.result = arg() end
    if has(said.parts, HAS_FAILURE) then said.failure = arg() end
    if has(said.parts, HAS_CHECKPOINT) then said.checkpoint = arg() end
    if has(said.parts, HAS_NOTE) then said.note = arg() end
    settlements[i], seqs[i] = said, said.seq
  end
  return settlements, seqs
end

local function write_settlement(job, said)
  local state, delay, line = said.state, said.delay, said.event
  if has(job.flags, SUSPENDING) and (state == QUEUED or state == SCHEDULED) then
    state, delay = SUSPENDED, NONE
    line = pack('<BB', KIND.suspended, SUSPENDED) .. line:sub(3)
  end
  leave(job)
  job.attempt, job.lost, job.timeouts = said.attempt, said.lost, said.timeouts
  if said.checkpoint then mark(job, CHECKPOINT, 'checkpoint', said.checkpoint) end
  if said.failure then mark(job, FAILURE, 'failure', said.failure) end
  mark(job, NOTE, 'note', said.note)
  job.y = NONE
  if delay >= 0 then job.clock, job.y = STEADY, now + delay end
  job.state, job.reason = state, said.reason
  if state == COMPLETED then
    mark(job, RESULT, 'result', said.result)
    mark(job, FAILURE, 'failure', false)
    mark(job, CHECKPOINT, 'checkpoint', false)
  end
  if state >= COMPLETED then
    close(job, said.keep)
  else
    place(job)
  end
  job.n = job.n + 1
  tell(job, line .. pack('<I4dd', job.n, now, due_at(job)) .. said.tail)
  enter(job)
  save(job)
end

-- Answers '1' or '0' for each; and which were accepted now, so that what they bring along happens with them.
local function settle_all(settlements, seqs)
  fetch_jobs(seqs)
  local answers, accepted = {}, {}
  for i = 1, #settlements do
    local said = settlements[i]
    local job = job_of(said.seq)
    if not job or job.fence ~= said.fence then
      answers[i] = '0'
    else
      answers[i] = '1'
      if job.state == RUNNING then
        if has(job.flags, CANCELLING) then
          -- Whoever was told that a running job is being cancelled never sees it complete or run again.
          local _, _, by = unpack_from(HELD, job.holder)
          job.attempt = said.attempt
          finish(job, CANCELLED, by, KIND.cancelled)
        else
          write_settlement(job, said)
          accepted[i] = true
        end
      end
    end
  end
  flush()
  return table.concat(answers), accepted
end
