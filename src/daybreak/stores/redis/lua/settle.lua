-- Settle: write the fate of leases, each only if its fence still holds.

local FATE = '<BBBI4I4I4ddd'
local HAS_RESULT, HAS_FAILURE, HAS_CHECKPOINT, HAS_NOTE = 1, 2, 4, 8

-- The kinds of outcomes in this call, each with the parts of its event that are known; then the settlements, in runs of
-- one kind: seq, and those of its own parts that are there.
function M.read_settlements()
  local fates, n = {}, 0
  local read = { seqs = {}, of = {}, results = {}, failures = {}, checkpoints = {}, notes = {} }
  local seqs, of, results = read.seqs, read.of, read.results
  for i = 1, number() do
    local fate = { known = {} }
    fate.state, fate.reason, fate.parts, fate.attempt, fate.lost, fate.timeouts, fate.fence, fate.delay, fate.keep =
      unpack_from(FATE, arg())
    fate.event, fate.tail = arg(), arg()
    fates[i] = fate
  end
  for _ = 1, number() do
    local fate = fates[number()]
    local has_result = M.has(fate.parts, HAS_RESULT)
    for _ = 1, number() do
      n = n + 1
      seqs[n], of[n] = arg(), fate
      if has_result then results[n] = arg() end
      if fate.parts > HAS_RESULT then
        if M.has(fate.parts, HAS_FAILURE) then read.failures[n] = arg() end
        if M.has(fate.parts, HAS_CHECKPOINT) then read.checkpoints[n] = arg() end
        if M.has(fate.parts, HAS_NOTE) then read.notes[n] = arg() end
      end
    end
  end
  return read
end

-- -- one by one -------------------------------------------------------------------------------------------------------

function M.write_settlement(job, fate, read, i)
  local state, delay, line = fate.state, fate.delay, fate.event
  if M.has(job.flags, K.SUSPENDING) and (state == QUEUED or state == SCHEDULED) then
    state, delay = SUSPENDED, NONE
    line = pack('<BB', K.suspended, SUSPENDED) .. line:sub(3)
  end
  M.leave(job)
  job.attempt, job.lost, job.timeouts = fate.attempt, fate.lost, fate.timeouts
  if read.checkpoints[i] then M.mark(job, K.CHECKPOINT, 'checkpoint', read.checkpoints[i]) end
  if read.failures[i] then M.mark(job, K.FAILURE, 'failure', read.failures[i]) end
  M.mark(job, K.NOTE, 'note', read.notes[i])
  job.y = NONE
  if delay >= 0 then job.clock, job.y = K.STEADY, now + delay end
  job.state, job.reason = state, fate.reason
  if state == COMPLETED then
    M.mark(job, K.RESULT, 'result', read.results[i])
    M.mark(job, K.FAILURE, 'failure', false)
    M.mark(job, K.CHECKPOINT, 'checkpoint', false)
  end
  if state >= COMPLETED then
    M.close(job, fate.keep)
  else
    M.place(job)
  end
  job.n = job.n + 1
  M.tell(job, line .. pack('<I4dd', job.n, now, M.due_at(job)) .. fate.tail)
  M.enter(job)
  M.save(job)
end

-- Answers '1' or '0'; and whether it was accepted now, so that what it brings along happens with it.
function M.settle(read, i)
  local job, fate = M.job_of(read.seqs[i]), read.of[i]
  if not job or job.fence ~= fate.fence then return '0', false end
  if job.state ~= RUNNING then return '1', false end
  if M.has(job.flags, K.CANCELLING) then
    -- Whoever was told that a running job is being cancelled never sees it complete or run again.
    local _, _, by = unpack_from(K.HELD, job.holder)
    job.attempt = fate.attempt
    M.finish(job, CANCELLED, by, K.cancelled)
    return '1', false
  end
  M.write_settlement(job, fate, read, i)
  return '1', true
end

-- -- many alike -------------------------------------------------------------------------------------------------------
-- Most jobs complete, and most that were claimed together look alike: what becomes of one becomes of all.

function M.outcome_of(fate, head)
  local state, _, flags, marks, priority, _, lane, _, fence, n, _, _, _, _, started = unpack_from(K.HEAD, head)
  if state ~= RUNNING or fence ~= fate.fence or fate.state ~= COMPLETED or fate.parts > HAS_RESULT
    or M.has(flags, K.CANCELLING) or band(marks, 255 - K.PROGRESS - K.NEEDS) ~= 0 or (n + 1) % 200 == 0 then
    return false
  end
  n = n + 1
  if marks >= K.NEEDS then M.have('gauge') end
  if fate.parts == HAS_RESULT then marks = marks + K.RESULT end
  local queue = M.queue_of(lane)
  if M.settings_of(queue).max_running then M.wake_work(queue) end
  local purge_at = fate.keep < 0 and NONE or now + fate.keep
  return {
    head = pack(K.HEAD, COMPLETED, fate.reason, 0, marks, priority, 0, lane, fate.attempt, fence, n, fate.lost,
      fate.timeouts, now, purge_at, started),
    line = fate.event .. pack('<I4dd', n, now, NONE) .. fate.tail,
    purge = purge_at ~= NONE and text(purge_at), lane = lane, priority = priority, count = 0, needs = marks >= K.NEEDS,
  }
end

function M.settle_all(read)
  local seqs = read.seqs
  local at, ended, leases, purges, results, n = M.fetch('at', seqs), {}, {}, {}, {}, 0
  local answers, accepted, outcomes = {}, {}, {}
  for i = 1, #seqs do
    local seq, fate = seqs[i], read.of[i]
    local record = at[seq]
    local head = record and record:sub(1, 58)
    local outcome = head and fate.known[head]
    if outcome == nil and head then
      outcome = M.outcome_of(fate, head)
      fate.known[head] = outcome
      if outcome then outcomes[#outcomes + 1] = outcome end
    end
    if outcome then
      local low, high = record:byte(59, 60)
      local stop = 60 + low + 256 * high
      low, high = record:byte(stop + 1, stop + 2)
      local name, past = record:sub(59, stop), stop + 3 + low + 256 * high
      if outcome.needs then M.give_back(M.needs_in(record, past)) end
      record = outcome.head .. name .. '\0\0' .. record:sub(past) .. outcome.line
      n = n + 1
      at[seq], ended[2 * n - 1], ended[2 * n], leases[n] = record, seq, record, seq
      local told_before = #lines
      lines[told_before + 1], lines[told_before + 2] = name, outcome.line
      told = told + 1
      if told == K.ROW then M.end_row() end
      finals[#finals + 1] = name
      if outcome.purge then
        local last = #purges
        purges[last + 1], purges[last + 2] = outcome.purge, seq
      end
      if read.results[i] then
        local last = #results
        results[last + 1], results[last + 2] = seq, read.results[i]
      end
      outcome.count = outcome.count + 1
      answers[i], accepted[i] = '1', true
    else
      answers[i], accepted[i] = M.settle(read, i)
    end
  end
  for i = 1, #outcomes do
    local outcome = outcomes[i]
    M.tally(outcome.lane, outcome.priority, RUNNING, -outcome.count)
    M.tally(outcome.lane, outcome.priority, COMPLETED, outcome.count)
  end
  M.run('HSET', 'at', ended)
  M.run('ZREM', 'lease', leases)
  M.run('ZADD', 'purge', purges)
  M.run('HSET', 'result', results)
  M.flush()
  return table.concat(answers), accepted
end
