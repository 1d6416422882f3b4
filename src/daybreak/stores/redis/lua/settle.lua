-- Settle leases, each only if its fence still matches and the id is that of the job: a server that lost its last writes
-- assigns the same seq and fence again, to another job.

local FATE = '<BBBI4I4I4ddd'
local HAS_RESULT, HAS_FAILURE, HAS_CHECKPOINT, HAS_NOTE, IS_UNUSED, IS_UNKEPT = 1, 2, 4, 8, 16, 32

-- The fates in this call, each with the known parts of its event and the total that it counts for; then the settlements in
-- runs of one fate: how long they ran and waited, and for each its seq, its id after the size of the id, and those of its
-- own parts that exist.
function M.read_settlements()
  local fates, n = {}, 0
  local batch = {
    seqs = {}, names = {}, fate_of_job = {}, results = {}, failures = {}, checkpoints = {}, notes = {}, runs = {},
    run_of = {},
  }
  local seqs, names, fate_of_job, results, run_of = batch.seqs, batch.names, batch.fate_of_job, batch.results, batch.run_of
  for i = 1, number() do
    local fate = { known = {} }
    fate.state, fate.reason, fate.parts, fate.attempt, fate.lost, fate.timeouts, fate.fence, fate.delay, fate.keep =
      unpack_from(FATE, arg())
    fate.event, fate.tail, fate.what = arg(), arg(), arg()
    fates[i] = fate
  end
  for i = 1, number() do
    local fate, count = fates[number()], number()
    local has_result = M.has(fate.parts, HAS_RESULT)
    batch.runs[i] = { fate = fate, before = n, count = count, times = arg() }
    for _ = 1, count do
      n = n + 1
      run_of[n] = batch.runs[i]
      seqs[n], names[n], fate_of_job[n] = arg(), arg(), fate
      if has_result then results[n] = arg() end
      if fate.parts > HAS_RESULT then
        if M.has(fate.parts, HAS_FAILURE) then batch.failures[n] = arg() end
        if M.has(fate.parts, HAS_CHECKPOINT) then batch.checkpoints[n] = arg() end
        if M.has(fate.parts, HAS_NOTE) then batch.notes[n] = arg() end
      end
    end
  end
  return batch
end

-- -- totals -----------------------------------------------------------------------------------------------------------

-- The counters of most settlements: completed jobs and how long they ran, first attempts and how long they had waited,
-- batches, the time of the latest settlement, and how long its attempt ran.
local ATTEMPTS = '<ddddddd'

-- The sums of this call for one cell, which count as one batch; nil if the settlements do not count.
local function attempts_of(batch, fate, lane, priority)
  if fate.what == '' then return nil end
  local cell = lane * 16 + priority
  local sum = batch.sums[cell]
  if not sum then
    sum = { lane = lane, priority = priority, completed = 0, ran = 0, first = 0, waited = 0, longest = 0 }
    batch.sums[cell] = sum
  end
  return sum
end

local function add(sum, fate, n, ran, longest, first, waited)
  if longest > sum.longest then sum.longest = longest end
  sum.first, sum.waited = sum.first + first, sum.waited + waited
  if fate.what == 'completed' then
    sum.completed, sum.ran = sum.completed + n, sum.ran + ran
  else
    M.count(sum.lane, sum.priority, fate.what, n, ran)
  end
  if fate.attempt > 1 then M.count(sum.lane, sum.priority, 'attempts', fate.attempt, 0) end
end

-- `counted` is the sum of each accepted settlement. If a whole run has the same one, the client's four sums at the start
-- of `times` are used. Else they are added up here: after the sums `times` contains how long each ran, and then how long
-- each had waited, below 0 if that is unknown.
local function count_runs(batch)
  local counted = batch.counted
  for i = 1, #batch.runs do
    local run = batch.runs[i]
    local before, count, sum, has_one_sum = run.before, run.count, counted[run.before + 1], true
    for j = 2, count do has_one_sum = has_one_sum and counted[before + j] == sum end
    for j = 1, has_one_sum and 0 or count do
      if counted[before + j] then
        local ran = unpack_from('<d', run.times, 25 + 8 * j)
        local waited = unpack_from('<d', run.times, 25 + 8 * (count + j))
        add(counted[before + j], run.fate, 1, ran, ran, waited < 0 and 0 or 1, math.max(waited, 0))
      end
    end
    if has_one_sum and sum then add(sum, run.fate, count, unpack_from('<dddd', run.times)) end
  end
end

local function write_attempts(sums)
  for cell, sum in pairs(sums) do
    local field = text(cell) .. ':'
    local completed, ran, first, waited, batches, last, last_ran = 0, 0, 0, 0, 0, 0, 0
    local existing = call('HGET', P .. 'total', field)
    if existing then completed, ran, first, waited, batches, last, last_ran = unpack_from(ATTEMPTS, existing) end
    if wall > last then
      last, last_ran = wall, sum.longest
    elseif wall == last then
      last_ran = math.max(last_ran, sum.longest)
    end
    call('HSET', P .. 'total', field, pack(ATTEMPTS, completed + sum.completed, ran + sum.ran, first + sum.first,
      waited + sum.waited, batches + 1, last, last_ran))
  end
end

-- How long one of the settled jobs ran.
local function ran_of(batch, i)
  for _, run in ipairs(batch.runs) do
    if i <= run.before + run.count then return (unpack_from('<d', run.times, 25 + 8 * (i - run.before))) end
  end
end

-- -- the general path, one by one -------------------------------------------------------------------------------------

-- An attempt that did not complete its job ends; returns the job's state.
function M.end_attempt(job, fate, checkpoint, failure)
  local state, delay, line = fate.state, fate.delay, fate.event
  if M.has(job.flags, K.SUSPENDING) and (state == QUEUED or state == SCHEDULED) then
    state, delay = SUSPENDED, NONE
    line = pack('<BB', K.suspended, SUSPENDED) .. line:sub(3)
  end
  M.leave(job)
  job.attempt, job.lost, job.timeouts = fate.attempt, fate.lost, fate.timeouts
  if checkpoint then M.mark(job, K.CHECKPOINT, 'checkpoint', checkpoint) end
  if failure then M.mark(job, K.FAILURE, 'failure', failure) end
  job.y = NONE
  if delay >= 0 then job.clock, job.y = K.STEADY, now + delay end
  job.state, job.reason = state, fate.reason
  if state >= COMPLETED then
    M.close(job, fate.keep)
  else
    M.update_rank(job)
  end
  job.n = job.n + 1
  M.record(job, line .. pack('<I4dd', job.n, wall, M.due_at(job)) .. fate.tail)
  M.enter(job)
  M.save(job)
  return state
end

function M.write_settlement(job, fate, batch, i)
  M.mark(job, K.NOTE, 'note', batch.notes[i])
  local state = fate.state
  if state == COMPLETED then
    M.mark(job, K.RESULT, 'result', batch.results[i])
    M.complete(job, fate)
  else
    state = M.end_attempt(job, fate, batch.checkpoints[i], batch.failures[i])
  end
  if not M.has(job.marks, K.FLIGHT) then return end
  if state == COMPLETED and not M.has(fate.parts, IS_UNKEPT) then
    M.deliver(job, ran_of(batch, i))
  elseif state >= COMPLETED or state == SUSPENDED then
    M.leave_flight(job)
  end
end

-- -- batch calls ------------------------------------------------------------------------------------------------------

-- How many leases of each call these settlements hand back as unused.
local function unused_calls(batch)
  local counts = {}
  for i = 1, #batch.seqs do
    local fate = batch.fate_of_job[i]
    local job = M.has(fate.parts, IS_UNUSED) and M.job_of(batch.seqs[i])
    if job and M.has(job.flags, K.GROUPED) and job.fence == fate.fence and job.id == batch.names[i]:sub(3) then
      local head = M.call_of(job)
      counts[head] = (counts[head] or 0) + 1
    end
  end
  return counts
end

-- Whether the rate token of an unused lease is given back. That of a batch call belongs to its head, and is given back only
-- if all jobs of the call are handed back together.
local function is_start_unused(batch, job)
  if not M.has(job.flags, K.GROUPED) then return true end
  batch.unused = batch.unused or unused_calls(batch)
  local head, elements = M.call_of(job)
  return head == job.seq and batch.unused[head] == elements
end

-- Counts a batch call, when its head is settled by the worker that ran it.
local function complete_call(batch, job, fate, i)
  local _, elements = M.call_of(job)
  if elements == 0 or M.has(job.flags, K.REAPED) then return end
  local run = batch.run_of[i]
  local ran = unpack_from('<d', run.times, 25 + 8 * (i - run.before))
  M.count(job.lane, job.priority, 'calls', 1, ran)
  M.count(job.lane, job.priority, 'elements', elements, ran)
  if elements > 1 then
    local by = unpack_from('<Hc0', fate.tail, 13)
    M.change(job, K.batch_completed, nil, by, cmsgpack.pack({ note = text(elements) .. ' jobs' }))
  end
end

-- Returns '1' or '0'; and whether it was accepted now, so that its inserts and puts are written.
function M.settle(batch, i)
  local job, fate = M.job_of(batch.seqs[i]), batch.fate_of_job[i]
  if not job or job.fence ~= fate.fence or job.id ~= batch.names[i]:sub(3) then return '0', false end
  if job.state ~= RUNNING then return '1', false end
  if M.has(fate.parts, IS_UNUSED) then
    if job.needs and is_start_unused(batch, job) then M.give_starts(M.needs_of(job.needs), job.started) end
  elseif M.has(job.flags, K.GROUPED) then
    complete_call(batch, job, fate, i)
  end
  if M.has(job.flags, K.CANCELLING) then
    -- Once a cancel of a running job was accepted, the job may neither complete nor run again.
    local _, _, by = unpack_from(K.HELD, job.holder)
    job.attempt = fate.attempt
    M.finish(job, CANCELLED, by, K.cancelled)
    return '1', false
  end
  batch.counted[i] = attempts_of(batch, fate, job.lane, job.priority)
  M.write_settlement(job, fate, batch, i)
  return '1', true
end

-- -- many equal jobs --------------------------------------------------------------------------------------------------
-- Most jobs complete, and most that were claimed together have equal heads: their new heads are computed once.

function M.outcome_of(batch, fate, head)
  local state, _, flags, marks, priority, _, lane, _, fence, n, _, _, _, _, started_at = unpack_from(HEAD, head)
  if state ~= RUNNING or fence ~= fate.fence or fate.state ~= COMPLETED or fate.parts > HAS_RESULT
    or band(flags, 65280 + K.CANCELLING) ~= 0 or band(marks, 65535 - K.PROGRESS - K.NEEDS) ~= 0
    or (n + 1) % 200 == 0 then
    return false
  end
  if M.has(marks, K.NEEDS) then M.have('gauge') end
  local queue = M.queue_of(lane)
  if M.settings_of(queue).max_running then M.wake_work(queue) end
  local outcome = {
    purge = fate.keep >= 0 and text(now + fate.keep), lane = lane, priority = priority, count = 0,
    needs = M.has(marks, K.NEEDS), sum = attempts_of(batch, fate, lane, priority),
  }
  outcome.head, outcome.line = completed(fate, marks, priority, lane, fence, n, started_at, now, wall)
  return outcome
end

function M.settle_all(batch)
  local seqs, names, counted = batch.seqs, batch.names, {}
  batch.sums, batch.counted = {}, counted
  local at, ended, leases, purges, results, n = M.fetch('at', seqs), {}, {}, {}, {}, 0
  local answers, accepted, outcomes = {}, {}, {}
  for i = 1, #seqs do
    local seq, name, fate = seqs[i], names[i], batch.fate_of_job[i]
    local record, stop = at[seq], 60 + #name
    local head = record and record:sub(61, stop) == name and record:sub(1, 60)
    local outcome = head and fate.known[head]
    if outcome == nil and head then
      outcome = M.outcome_of(batch, fate, head)
      fate.known[head] = outcome
      if outcome then outcomes[#outcomes + 1] = outcome end
    end
    if outcome then
      local low, high = record:byte(stop + 1, stop + 2)
      local past = stop + 3 + low + 256 * high
      if outcome.needs then M.give_back(M.needs_in(record, past)) end
      record = outcome.head .. name .. '\0\0' .. record:sub(past) .. outcome.line
      n = n + 1
      at[seq], ended[2 * n - 1], ended[2 * n], leases[n] = record, seq, record, seq
      local last_line = #event_lines
      event_lines[last_line + 1], event_lines[last_line + 2] = name, outcome.line
      event_count = event_count + 1
      if event_count == K.ROW then M.end_row() end
      finals[#finals + 1] = name
      if outcome.purge then
        local last = #purges
        purges[last + 1], purges[last + 2] = outcome.purge, seq
      end
      if batch.results[i] then
        local last = #results
        results[last + 1], results[last + 2] = seq, batch.results[i]
      end
      outcome.count = outcome.count + 1
      counted[i] = outcome.sum
      answers[i], accepted[i] = '1', true
    else
      answers[i], accepted[i] = M.settle(batch, i)
    end
  end
  for i = 1, #outcomes do
    local outcome = outcomes[i]
    M.tally(outcome.lane, outcome.priority, RUNNING, -outcome.count)
    M.tally(outcome.lane, outcome.priority, COMPLETED, outcome.count)
  end
  count_runs(batch)
  write_attempts(batch.sums)
  M.run('HSET', 'at', ended)
  M.run('ZREM', 'lease', leases)
  M.run('ZADD', 'purge', purges)
  M.run('HSET', 'result', results)
  M.flush()
  return table.concat(answers), accepted
end
