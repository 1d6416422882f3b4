-- Claim: lease the most urgent jobs whose tasks the worker knows.

local MAX_PER_CLAIM = 100 -- bounds jobs that one claim queues, ends and parks, each
local TURN_UNIT = 720720

function M.read_claim()
  local claim = {
    worker = arg(), call = arg(), flags = number(), limit = number(), lease_for = number(),
    begins = number(), queues = {}, served = {}, expired = 0, parked = 0, taken = 0,
  }
  for i = 1, number() do claim.queues[i], claim.served[i] = arg(), number() end
  local tasks = number()
  if tasks >= 0 then
    claim.tasks = {}
    for i = 1, tasks do claim.tasks[i] = arg() end
  end
  if M.has(claim.flags, K.CHOSEN) then
    claim.flags, claim.job = claim.flags - K.CHOSEN, arg()
  end
  local batches = number()
  if batches > 0 then
    parts.call()
    claim.batches, claim.lingering, claim.spoken_for, claim.out, claim.passed_over = {}, {}, {}, {}, 0
    for _ = 1, batches do
      local task = arg()
      claim.batches[task] = { size = number(), linger = number() }
    end
  end
  return claim
end

-- -- lanes, which are read in batches ---------------------------------------------------------------------------------

function M.refill(lane)
  lane.at = 1
  if lane.is_only then -- there is no other lane to compare scores with
    lane.members = call('ZRANGE', P .. lane.name, lane.from, lane.from + lane.piece - 1)
  else
    local found = call('ZRANGE', P .. lane.name, lane.from, lane.from + lane.piece - 1, 'WITHSCORES')
    lane.members, lane.scores = {}, {}
    for i = 1, #found, 2 do
      lane.members[#lane.members + 1] = found[i]
      lane.scores[#lane.scores + 1] = tonumber(found[i + 1])
    end
  end
  lane.from = lane.from + lane.piece
  return #lane.members > 0
end

-- Moves to the next job of a lane; false if there is none.
-- Jobs that a batch call has taken along, or that were passed over, are skipped.
function M.step(lane)
  repeat
    lane.at = lane.at + 1
    if lane.at > #lane.members then
      if #lane.members < lane.piece or not M.refill(lane) then return false end
      if lane.piece > 2 then M.fetch('at', lane.members) end
    end
  until not lane.out or not lane.out[lane.members[lane.at]]
  return true
end

-- -- queues: the lanes of the tasks that the worker knows -------------------------------------------------------------

-- The one job that the claim names, as a lane of its own; none if it is not queued in one of these lanes.
function M.open_chosen(queue_lanes, numbers, id)
  local seq = M.hget('id', id)
  local job = seq and M.job_of(seq)
  if not job or job.state ~= QUEUED then return end
  for i = 1, #numbers do
    if numbers[i] == job.lane then
      queue_lanes.lanes[1] = {
        name = 'queued:' .. text(job.lane), piece = 2, from = 1, at = 1, members = { seq }, scores = { job.x },
      }
    end
  end
end

function M.open_lanes(queue_lanes, queue, claim, limit)
  local numbers = {}
  if claim.tasks then
    if #claim.tasks == 0 then return end
    local lanes = M.fetch('lanes:' .. queue, claim.tasks)
    for i = 1, #claim.tasks do
      local lane = lanes[claim.tasks[i]]
      if lane then numbers[#numbers + 1] = tonumber(lane) end
    end
  else
    numbers = M.lanes_of(queue)
  end
  if claim.job then return M.open_chosen(queue_lanes, numbers, claim.job) end
  -- Read all wanted jobs of a single lane, but only a few of each of many.
  local piece = math.min(K.CHUNK, #numbers == 1 and limit or math.ceil(2 * limit / #numbers))
  local is_only = #numbers == 1 and #claim.queues == 1
  local lanes, all = queue_lanes.lanes, {}
  for i = 1, #numbers do
    local lane = { name = 'queued:' .. text(numbers[i]), piece = piece, from = 0, is_only = is_only }
    if M.refill(lane) then
      lanes[#lanes + 1] = lane
      for j = 1, #lane.members do all[#all + 1] = lane.members[j] end
    end
  end
  if limit >= #lanes then M.fetch('at', all) end -- else each record is read when it is needed
  for i = math.floor(#lanes / 2), 1, -1 do M.sink(lanes, i) end
end

function M.open_again(claim, i, queue_lanes, limit)
  queue_lanes.lanes, queue_lanes.key = {}, nil
  if queue_lanes.room >= 1 and limit > 0 then
    M.open_lanes(queue_lanes, claim.queues[i], claim, math.min(limit, queue_lanes.room))
  end
end

function M.open_queue(claim, i, limit)
  local queue = claim.queues[i]
  local settings = M.settings_of(queue)
  local queue_lanes = { settings = settings, served = claim.served[i], room = math.huge, index = i }
  if settings.paused then
    queue_lanes.room = 0
  elseif settings.max_running then
    queue_lanes.room = settings.max_running - M.counted(queue, RUNNING, RUNNING)
  end
  M.open_again(claim, i, queue_lanes, limit)
  return queue_lanes
end

-- The lanes of a queue are a heap, ordered by the score of their first jobs.
local function is_first(one, other)
  local score, least = one.scores[one.at], other.scores[other.at]
  return score < least or (score == least and one.members[one.at] < other.members[other.at])
end

function M.sink(lanes, i)
  local n = #lanes
  while 2 * i <= n do
    local child = 2 * i
    if child < n and is_first(lanes[child + 1], lanes[child]) then child = child + 1 end
    if not is_first(lanes[child], lanes[i]) then return end
    lanes[i], lanes[child] = lanes[child], lanes[i]
    i = child
  end
end

-- The first job of the first lane was taken.
function M.advance_queue(queue_lanes, lane)
  local lanes = queue_lanes.lanes
  queue_lanes.key = nil
  if not M.step(lane) then
    lanes[1] = lanes[#lanes]
    lanes[#lanes] = nil
  end
  if #lanes > 1 then M.sink(lanes, 1) end
end

function M.urgency(queue_lanes, lane)
  local score, settings = lane.scores[lane.at], queue_lanes.settings
  if settings.aging then
    local order = score > K.FIFO and 0 or score
    return math.max(0, -math.floor((now - order) / math.max(1, settings.patience)))
  end
  if score > K.FIFO then return score - K.FIFO end
  if score == 0 then return 0 end
  return M.job_of(lane.members[lane.at]).priority
end

local function before(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  if a[2] ~= b[2] then return a[2] < b[2] end
  return a[3] < b[3]
end

-- The queue from which the next job is taken.
function M.next_queue(all_queue_lanes)
  local best, best_key
  for i = 1, #all_queue_lanes do
    local queue_lanes = all_queue_lanes[i]
    if queue_lanes.room >= 1 and #queue_lanes.lanes > 0 then
      if #all_queue_lanes == 1 then return queue_lanes end
      if not queue_lanes.key then
        local turn = math.floor((queue_lanes.served + 1) * TURN_UNIT / math.max(1, queue_lanes.settings.weight))
        queue_lanes.key = { M.urgency(queue_lanes, queue_lanes.lanes[1]), turn, queue_lanes.index }
      end
      if not best or before(queue_lanes.key, best_key) then best, best_key = queue_lanes, queue_lanes.key end
    end
  end
  return best
end

-- -- leases -----------------------------------------------------------------------------------------------------------

-- The leases that this worker took under this call and still holds: the first reply was lost.
function M.leases_of_this_call(claim)
  local taken, from = {}, 0
  while true do
    local seqs = call('ZRANGE', P .. 'lease', from, from + K.CHUNK - 1)
    M.fetch('at', seqs)
    for i = 1, #seqs do
      local job = M.job_of(seqs[i])
      if M.has(job.flags, K.CALLED) then
        local worker, name = unpack_from(K.HELD, job.holder)
        if worker == claim.worker and name == claim.call then taken[#taken + 1] = seqs[i] end
      end
    end
    if #seqs < K.CHUNK then break end
    from = from + K.CHUNK
  end
  return M.in_calls(taken)
end

-- Leases by seq, but those of a batch call are neighbours: the head first, the others in rank order. Also returns how many
-- jobs and calls they are.
function M.in_calls(seqs)
  local place, count = {}, 0
  for i = 1, #seqs do
    local job = M.job_of(seqs[i])
    local head = M.has(job.flags, K.GROUPED) and M.call_of(job) or job.seq
    local score = M.score_of(M.settings_of(M.queue_of(job.lane)), job.priority, M.arrived(job))
    place[job.seq] = { head, head == job.seq and -1 or score, job.seq }
  end
  table.sort(seqs, function(one, other)
    local a, b = place[one], place[other]
    for i = 1, 2 do
      if a[i] ~= b[i] then return a[i] < b[i] end
    end
    return a[3] < b[3]
  end)
  for i = 1, #seqs do
    if i == 1 or place[seqs[i]][1] ~= place[seqs[i - 1]][1] then count = count + 1 end
  end
  return seqs, count
end

-- Jobs with equal heads get leases with equal heads, which are computed once.
function M.start_of(claim, by, head)
  local _, _, _, marks, priority, _, lane, attempt, fence, n, lost, timeouts = unpack_from(HEAD, head)
  if M.has(marks, K.NEEDS) then M.have('gauge') end -- only this part: a lookup would load job.lua first
  local start = {
    marks = marks, ends = band(marks, K.NOTE + K.PROGRESS + K.EXPIRY), lane = lane, priority = priority, n = n + 1, count = 0,
    expires = M.has(marks, K.EXPIRY), needs = M.has(marks, K.NEEDS), is_retry = attempt > 0,
  }
  start.head, start.line = started(claim.flags, marks, priority, lane, attempt, fence, n, lost, timeouts, now, wall,
    claim.lease_for, by)
  return start
end

-- Leases jobs; returns whether there are no more, the heads that were computed, and whether the lanes must be opened again:
-- a job has ended that gave its resources back and handed its flight over, so that others come next. `claim.taken` is how
-- many jobs were leased; a batch call counts as one.
function M.take(claim, all_queue_lanes, seqs, heads)
  local holder = pack(K.HELD, #claim.worker, claim.worker, #claim.call, claim.call, 0, '')
  local by = pack('<Hc0I4c0', #claim.worker, claim.worker, 0, '')
  local held, till, starts = pack('<Hc0', #holder, holder), text(now + claim.lease_for), {}
  local at, begun, leases, n = M.cache('at'), {}, {}, 0
  local is_exhausted, is_handed_over, found, removed = false, false, {}, {}
  while claim.taken < claim.limit and claim.expired < MAX_PER_CLAIM and claim.parked < MAX_PER_CLAIM and not is_handed_over do
    local queue_lanes = M.next_queue(all_queue_lanes)
    if not queue_lanes then
      is_exhausted = true
      break
    end
    local lane = queue_lanes.lanes[1]
    local seq = lane.members[lane.at]
    local record = at[seq] or M.hget('at', seq)
    local head = record:sub(1, 60)
    if claim.taken >= claim.begins and not M.has(claim.flags, K.AHEAD) then -- jobs from here on are prefetched
      claim.flags, starts = claim.flags + K.AHEAD, {}
    end
    local start = starts[head]
    if not start then
      start = M.start_of(claim, by, head)
      starts[head] = start
      found[#found + 1] = start
    end
    local low, high = record:byte(61, 62)
    local stop = 62 + low + 256 * high
    local history_at, needs, needed, lacking = stop + 3, nil, '', nil
    if start.needs then
      needs, history_at = M.needs_in(record, history_at)
      needed, lacking = needs.free, M.lacking(needs, seq, start.priority, start.is_retry)
    end
    local is_overdue, is_passed_over, call_head, mates = start.expires and M.is_overdue(seq), false, nil, nil
    if claim.batches then
      is_passed_over = claim.out[seq]
      claim.spoken_for[seq], lane.out = true, claim.out
      local batching = M.has(start.marks, K.BATCH) and not (is_overdue or is_passed_over)
        and M.batching_of(claim, start.lane)
      if batching and not M.hget('left', seq) then -- else a call that it began still runs: see kernel/claim.py
        call_head = M.job_of(seq)
        mates = M.find_mates(claim, queue_lanes.room, call_head, batching)
        if not mates then
          is_passed_over = true
          if M.pass_over(claim, seq) then
            is_exhausted = true
            break
          end
        end
      end
    end
    if is_passed_over then
      -- It stays where it is.
    elseif is_overdue then
      M.expire(M.job_of(seq))
      claim.expired, is_handed_over = claim.expired + 1, needs and M.has(start.marks, K.FLIGHT)
    elseif lacking and needs.is_fail_fast and M.fails_fast(M.job_of(seq)) then
      claim.expired, is_handed_over = claim.expired + 1, M.has(start.marks, K.FLIGHT)
    elseif lacking then
      M.park(M.job_of(seq), lacking)
      claim.parked = claim.parked + 1
    elseif mates then
      if needs then M.take_slots(needs, seq, start.is_retry) end
      M.start_call(claim, call_head, mates, holder, seqs, heads)
      claim.taken = claim.taken + 1
      queue_lanes.room, queue_lanes.served = queue_lanes.room - 1 - #mates, queue_lanes.served + 1 + #mates
    else
      if start.ends ~= 0 then M.end_wait({ seq = seq, marks = start.marks }) end
      if needs then M.take_slots(needs, seq, start.is_retry) end
      local name = record:sub(61, stop)
      if start.n % 200 == 0 then
        record = start.head .. name .. held .. needed .. M.shortened(record:sub(history_at) .. start.line, start.n)
      else
        record = start.head .. name .. held .. needed .. record:sub(history_at) .. start.line
      end
      n = n + 2
      begun[n - 1], begun[n], leases[n - 1], leases[n] = seq, record, till, seq
      local last_line = #event_lines
      event_lines[last_line + 1], event_lines[last_line + 2] = name, start.line
      event_count = event_count + 1
      if event_count == K.ROW then M.end_row() end
      start.count = start.count + 1
      if M.has(start.marks, K.BATCH) then M.zset(M.company_of({ lane = start.lane, seq = seq }), seq, false) end
      claim.taken = claim.taken + 1
      seqs[#seqs + 1], heads[#heads + 1] = seq, start.head
      queue_lanes.room, queue_lanes.served = queue_lanes.room - 1, queue_lanes.served + 1
    end
    if not claim.batches then
      removed[lane.name] = (removed[lane.name] or 0) + 1
    elseif not is_passed_over then
      M.zset('queued:' .. text(start.lane), seq, false)
    end
    M.advance_queue(queue_lanes, lane)
  end
  M.run('HSET', 'at', begun)
  M.run('ZADD', 'lease', leases)
  for name, count in pairs(removed) do
    if claim.job then
      call('ZREM', P .. name, M.hget('id', claim.job))
    else -- all removed jobs were at the head of their lanes
      call('ZREMRANGEBYRANK', P .. name, 0, count - 1)
    end
  end
  return is_exhausted, found, is_handed_over
end

-- The head of the batch call of each of these leases that is in one.
local function groups_of(seqs, heads)
  local groups = {}
  for i = 1, #seqs do
    local low, high = heads[i]:byte(3, 4)
    if M.has(low + 256 * high, K.GROUPED) then groups[#groups + 1] = M.call_of({ seq = seqs[i] }) end
  end
  return groups
end

function M.claim_all(claim)
  local due, seqs, heads, all_queue_lanes = M.promote(MAX_PER_CLAIM), {}, {}, {}
  if M.has(claim.flags, 128) then
    claim.flags = claim.flags - 128
    seqs, claim.taken = M.leases_of_this_call(claim)
    for i = 1, #seqs do heads[i] = M.hget('at', seqs[i]):sub(1, 60) end
  end
  for i = 1, #claim.queues do all_queue_lanes[i] = M.open_queue(claim, i, claim.limit - claim.taken) end
  local is_exhausted, starts, is_handed_over = M.take(claim, all_queue_lanes, seqs, heads)
  while is_handed_over do
    local more
    M.flush()
    for i = 1, #claim.queues do M.open_again(claim, i, all_queue_lanes[i], claim.limit - claim.taken) end
    is_exhausted, more, is_handed_over = M.take(claim, all_queue_lanes, seqs, heads)
    for i = 1, #more do starts[#starts + 1] = more[i] end
  end
  for i = 1, #starts do
    local start = starts[i]
    M.tally(start.lane, start.priority, QUEUED, -start.count)
    M.tally(start.lane, start.priority, RUNNING, start.count)
  end
  local again = not is_exhausted or due == MAX_PER_CLAIM
  if next(freed) then again = M.offer_freed() or again end
  local wait = claim.taken < claim.limit and M.next_in() or false
  if claim.ripe_at and claim.taken < claim.limit then
    local ripe_in = claim.ripe_at - now
    wait = text(wait and math.min(ripe_in, tonumber(wait)) or ripe_in)
  end
  M.flush()
  local bodies, jobs, checkpoints = M.fetch('job', seqs), {}, {}
  for i = 1, #seqs do
    jobs[i] = bodies[seqs[i]]
    if M.has(heads[i]:byte(5), K.CHECKPOINT) then checkpoints[#checkpoints + 1] = M.hget('checkpoint', seqs[i]) end
  end
  return { seqs, heads, jobs, checkpoints, wait, again and 1 or 0, groups_of(seqs, heads) }
end
