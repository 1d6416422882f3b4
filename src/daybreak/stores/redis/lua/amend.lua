-- What people change, guarded by the job's state.
local action, by, note, tail, priority = arg(), arg(), arg(), arg(), arg()
priority = priority ~= '' and tonumber(priority) or nil
local by_id = number() == 1
-- By filter: what was found is changed if it still matches; between the look and the write others may have been at it.
local states, reason, of_priority = arg(), number(), number()
local names = {}
for i = 1, number() do names[i] = arg() end

local DONE, REQUESTED, REFUSED, MISSING = 0, 1, 2, 3
local act = {}

local function ask(job, flag, kind)
  job.flags = with(job.flags, flag)
  local worker, call_, canceller = unpack_from(HELD, job.holder)
  if flag == CANCELLING then canceller = by end
  job.holder = pack(HELD, #worker, worker, #call_, call_, #canceller, canceller)
  change(job, kind, nil, by, tail)
  topics['worker:' .. worker] = true
  save(job)
end

function act.cancel(job)
  if job.state >= COMPLETED then return REFUSED end
  if job.state == RUNNING then
    if not has(job.flags, CANCELLING) then ask(job, CANCELLING, KIND.cancel_requested) end
    return REQUESTED
  end
  finish(job, CANCELLED, by, KIND.cancelled, nil, note, tail)
  return DONE
end

function act.suspend(job)
  if job.state >= COMPLETED or job.state == SUSPENDED then return REFUSED end
  if job.state == RUNNING then
    if not has(job.flags, SUSPENDING) then ask(job, SUSPENDING, KIND.suspend_requested) end
    return REQUESTED
  end
  leave(job)
  job.state = SUSPENDED
  mark(job, NOTE, 'note', note)
  change(job, KIND.suspended, SUSPENDED, by, tail)
  enter(job)
  save(job)
  return DONE
end

function act.resume(job)
  if job.state == RUNNING and has(job.flags, SUSPENDING) then
    job.flags = job.flags - SUSPENDING
    change(job, KIND.resumed, nil, by)
    topics['worker:' .. unpack_from(HELD, job.holder)] = true
    save(job)
    return DONE
  end
  if job.state ~= SUSPENDED then return REFUSED end
  leave(job)
  mark(job, NOTE, 'note', false)
  if is_early(job) then
    job.state = SCHEDULED
  else
    job.state, job.clock, job.y = QUEUED, 0, NONE
  end
  change(job, KIND.resumed, job.state, by, nil, nil, due_at(job))
  enter(job)
  save(job)
  return DONE
end

function act.retry(job)
  if job.state < COMPLETED then return REFUSED end
  local unique = ties_of(job)
  if unique then
    if hget('unique', unique) then return REFUSED end
    hset('unique', unique, job.seq)
  end
  leave(job)
  job.state, job.reason, job.attempt, job.lost, job.timeouts, job.clock, job.y = QUEUED, 0, 0, 0, 0, 0, NONE
  mark(job, NOTE, 'note', false)
  mark(job, RESULT, 'result', false)
  place(job)
  change(job, KIND.retried, QUEUED, by, tail, nil, nil, nil, 0)
  enter(job)
  save(job)
  return DONE
end

function act.remove(job)
  if job.state < COMPLETED then return REFUSED end
  change(job, KIND.removed, nil, by, tail)
  drop(job)
  return DONE
end

function act.rerank(job)
  if job.state >= COMPLETED or job.state == RUNNING then return REFUSED end
  rerank(job, priority, by)
  return DONE
end

local function is_meant(job)
  return (states == '' or states:find(text(job.state), 1, true)) and (reason < 0 or reason == job.reason)
    and (of_priority < 0 or of_priority == job.priority)
end

begin()
local seqs, answers = names, {}
if by_id then
  local ids = fetch('id', names)
  seqs = {}
  for i = 1, #names do
    if ids[names[i]] then seqs[#seqs + 1] = ids[names[i]] end
  end
end
fetch_jobs(seqs)
for i = 1, #names do
  local seq = names[i]
  if by_id then seq = hget('id', names[i]) end
  local job = seq and job_of(seq) or nil
  if job and (by_id or is_meant(job)) then
    local verdict = act[action](job)
    answers[#answers + 1] = pack('<BB', verdict, job.state) .. job.id
  elseif by_id then
    answers[#answers + 1] = pack('<BB', MISSING, NO_STATE) .. names[i]
  end
end
finish_script()
return { text(server), answers }
