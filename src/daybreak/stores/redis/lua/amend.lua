-- Changes that people make to jobs; the job's state decides whether they are allowed.
local action, by, note, tail, priority = arg(), arg(), arg(), arg(), arg()
priority = priority ~= '' and tonumber(priority) or nil
local by_id = number() == 1
-- By filter: a job that was found is changed only if it still matches: others may have changed it since the search.
local states, reason, of_priority = arg(), number(), number()
local names = {}
for i = 1, number() do names[i] = arg() end

local DONE, REQUESTED, REFUSED, MISSING = 0, 1, 2, 3
local act = {}

local function ask(job, flag, kind)
  job.flags = M.with(job.flags, flag)
  local worker, call_, canceller = unpack_from(K.HELD, job.holder)
  if flag == K.CANCELLING then canceller = by end
  job.holder = pack(K.HELD, #worker, worker, #call_, call_, #canceller, canceller)
  M.change(job, kind, nil, by, tail)
  M.wake('worker:' .. worker)
  M.save(job)
end

local function join(job)
  if M.has(job.marks, K.FLIGHT) then M.join(job) end
end

function act.cancel(job)
  if job.state >= COMPLETED then return REFUSED end
  if job.state == RUNNING and not M.has(job.flags, K.DETACHED) then
    if not M.has(job.flags, K.CANCELLING) then ask(job, K.CANCELLING, K.cancel_requested) end
    return REQUESTED
  end
  M.finish(job, CANCELLED, by, K.cancelled, nil, note, tail)
  return DONE
end

function act.suspend(job)
  if job.state >= COMPLETED or job.state == SUSPENDED then return REFUSED end
  if job.state == RUNNING then
    if not M.has(job.flags, K.SUSPENDING) then ask(job, K.SUSPENDING, K.suspend_requested) end
    return REQUESTED
  end
  if job.needs then M.release_offers(job) end
  M.leave(job)
  job.state = SUSPENDED
  M.mark(job, K.NOTE, 'note', note)
  M.change(job, K.suspended, SUSPENDED, by, tail)
  M.enter(job)
  M.save(job)
  if M.has(job.marks, K.FLIGHT) then M.leave_flight(job) end
  return DONE
end

function act.resume(job)
  if job.state == RUNNING and M.has(job.flags, K.SUSPENDING) then
    job.flags = job.flags - K.SUSPENDING
    M.change(job, K.resumed, nil, by)
    M.wake('worker:' .. unpack_from(K.HELD, job.holder))
    M.save(job)
    return DONE
  end
  if job.state ~= SUSPENDED then return REFUSED end
  M.leave(job)
  M.mark(job, K.NOTE, 'note', false)
  if M.is_early(job) then
    job.state = SCHEDULED
  else
    job.state, job.clock, job.y = M.ready_state(job), 0, NONE
  end
  M.change(job, K.resumed, job.state, by, nil, nil, M.due_at(job))
  M.enter(job)
  M.save(job)
  join(job)
  return DONE
end

function act.retry(job)
  if job.state < COMPLETED then return REFUSED end
  if job.needs and M.needs_of(job.needs).holder then return REFUSED end -- its holder, which would have run it, is gone
  local unique, _, gives_up = M.ties_of(job)
  if unique then
    local held = M.hget('unique', unique)
    if held and not (gives_up and M.job_of(held).state == RUNNING) then return REFUSED end
    M.hset('unique', unique, job.seq)
  end
  M.leave(job)
  job.state, job.reason, job.attempt, job.lost, job.timeouts, job.clock, job.y = QUEUED, 0, 0, 0, 0, 0, NONE
  job.since = NONE
  M.mark(job, K.NOTE, 'note', false)
  if M.has(job.marks, K.POINTS) then M.forget_result(job) else M.mark(job, K.RESULT, 'result', false) end
  M.update_rank(job)
  M.change(job, K.retried, QUEUED, by, tail, nil, nil, nil, 0)
  M.enter(job)
  M.save(job)
  join(job)
  return DONE
end

function act.remove(job)
  if job.state < COMPLETED then return REFUSED end
  M.change(job, K.removed, nil, by, tail)
  M.drop(job)
  return DONE
end

function act.start(job)
  if job.state ~= SCHEDULED then return REFUSED end
  M.leave(job)
  job.state, job.clock, job.y = M.ready_state(job), 0, NONE
  M.change(job, K.due, job.state, by, tail)
  M.enter(job)
  M.save(job)
  join(job)
  return DONE
end

function act.rerank(job)
  if job.state >= COMPLETED or job.state == RUNNING then return REFUSED end
  M.rerank(job, priority, by)
  if M.has(job.marks, K.FOLLOWS) then M.urge(job, by) end
  return DONE
end

local function is_meant(job)
  return (states == '' or states:find(text(job.state), 1, true)) and (reason < 0 or reason == job.reason)
    and (of_priority < 0 or of_priority == job.priority)
end

M.begin()
local seqs, answers = names, {}
if by_id then
  local ids = M.fetch('id', names)
  seqs = {}
  for i = 1, #names do
    if ids[names[i]] then seqs[#seqs + 1] = ids[names[i]] end
  end
end
M.fetch('at', seqs)
for i = 1, #names do
  local seq = names[i]
  if by_id then seq = M.hget('id', names[i]) end
  local job = seq and M.job_of(seq) or nil
  if job and (by_id or is_meant(job)) then
    local verdict = act[action](job)
    answers[#answers + 1] = pack('<BB', verdict, job.state) .. job.id
  elseif by_id then
    answers[#answers + 1] = pack('<BB', MISSING, NO_STATE) .. names[i]
  end
end
if next(freed) then M.offer_freed() end
M.finish_script()
return { stamp, answers }
