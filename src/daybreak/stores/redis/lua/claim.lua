-- Claim: the most urgent jobs that a worker knows, leased in one go.

local PER_CLAIM = 100 -- at most so many are promoted, and so many found expired, in one claim
local TURN = 720720

local function read_claim()
  local claim = {
    worker = arg(), call = arg(), flags = number(), limit = number(), lease_for = number(), queues = {}, served = {},
  }
  for i = 1, number() do claim.queues[i], claim.served[i] = arg(), number() end
  local tasks = number()
  if tasks >= 0 then
    claim.tasks = {}
    for i = 1, tasks do claim.tasks[i] = arg() end
  end
  return claim
end

-- -- lanes: a lane is read a piece at a time ---------------------------------------------------------------------------

local function refill(lane)
  local found = call('ZRANGE', P .. lane.name, lane.from, lane.from + lane.piece - 1, 'WITHSCORES')
  lane.members, lane.scores, lane.at = {}, {}, 1
  for i = 1, #found, 2 do
    lane.members[#lane.members + 1] = found[i]
    lane.scores[#lane.scores + 1] = tonumber(found[i + 1])
  end
  lane.from = lane.from + lane.piece
  fetch_jobs(lane.members)
  return #lane.members > 0
end

local function step(lane)
  lane.at = lane.at + 1
  return lane.at <= #lane.members or (#lane.members == lane.piece and refill(lane))
end

-- -- lines: one queue as its claimant sees it ---------------------------------------------------------------------------

local function open_lanes(line, queue, claim)
  local numbers = {}
  if claim.tasks then
    if #claim.tasks == 0 then return end
    local known_lanes = fetch('lanes:' .. queue, claim.tasks)
    for i = 1, #claim.tasks do
      if known_lanes[claim.tasks[i]] then numbers[#numbers + 1] = tonumber(known_lanes[claim.tasks[i]]) end
    end
  else
    numbers = lanes_of(queue)
  end
  -- Of one lane all that is wanted, of many a little each.
  local piece = math.min(CHUNK, #numbers == 1 and claim.limit or math.ceil(2 * claim.limit / #numbers) + 2)
  for i = 1, #numbers do
    local lane = { name = 'queued:' .. text(numbers[i]), number = numbers[i], piece = piece, from = 0 }
    if refill(lane) then line.lanes[#line.lanes + 1] = lane end
  end
end

local function open_line(claim, i, room_for)
  local queue = claim.queues[i]
  local settings = settings_of(queue)
  local line = { settings = settings, served = claim.served[i], lanes = {}, room = math.huge, index = i }
  if settings.paused then
    line.room = 0
  elseif settings.max_running then
    line.room = settings.max_running - counted('running', running, queue)
  end
  if line.room >= 1 and room_for > 0 then open_lanes(line, queue, claim) end
  return line
end

-- The number of the lane whose head is first.
local function head_of_line(line)
  local lanes = line.lanes
  local best = 1
  for i = 2, #lanes do
    local one, other = lanes[i], lanes[best]
    local score, least = one.scores[one.at], other.scores[other.at]
    if score < least or (score == least and one.members[one.at] < other.members[other.at]) then best = i end
  end
  return best
end

local function urgency(line, lane)
  local score, settings = lane.scores[lane.at], line.settings
  if settings.aging then
    local order = score >= FIFO and 0 or score
    return math.max(0, -math.floor((now - order) / math.max(1, settings.patience)))
  end
  if score > FIFO then return score - FIFO end
  if score == 0 then return 0 end
  return job_of(lane.members[lane.at]).priority
end

local function before(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  if a[2] ~= b[2] then return a[2] < b[2] end
  return a[3] < b[3]
end

local function next_line(lines_)
  if #lines_ == 1 then
    local line = lines_[1]
    if line.room < 1 or #line.lanes == 0 then return nil end
    return line, head_of_line(line)
  end
  local best, best_key, best_lane
  for i = 1, #lines_ do
    local line = lines_[i]
    if line.room >= 1 and #line.lanes > 0 then
      local at = line.best or head_of_line(line)
      line.best = at
      local turn = math.floor((line.served + 1) * TURN / math.max(1, line.settings.weight))
      local key = { urgency(line, line.lanes[at]), turn, line.index }
      if not best or before(key, best_key) then best, best_key, best_lane = line, key, at end
    end
  end
  return best, best_lane
end

-- -- leases -----------------------------------------------------------------------------------------------------------

local function taken_before(claim, taken)
  local from = 0
  while true do
    local seqs = call('ZRANGE', P .. 'lease', from, from + CHUNK - 1)
    fetch_jobs(seqs)
    for i = 1, #seqs do
      local job = job_of(seqs[i])
      if has(job.flags, CALLED) then
        local worker, call_ = unpack_from(HELD, job.holder)
        if worker == claim.worker and call_ == claim.call then taken[#taken + 1] = seqs[i] end
      end
    end
    if #seqs < CHUNK then break end
    from = from + CHUNK
  end
  table.sort(taken)
end

local STARTED = '<BBBBI4dddI4'
local LEASED = '<BBBBBBI4I4dI4I4I4ddd'

local function lease(claim, lane, seq, shared)
  local record = known.at[seq]
  local _, _, _, marks, priority, _, number_, attempt, fence, n, lost, timeouts, _, _, _, id, _, at =
    unpack_from(HEAD, record)
  if band(marks, 76) ~= 0 then -- a note, progress or an expiry: all end here
    local job = { seq = seq, marks = marks }
    forget_expiry(job)
    mark(job, NOTE, 'note', false)
    mark(job, PROGRESS, 'progress', false)
    marks = job.marks
  end
  attempt, fence, n = attempt + 1, fence + 1, n + 1
  local line = pack(STARTED, 2, RUNNING, 0, NO_PRIORITY, n, now, NONE, fence, attempt) .. shared.by
  local name = pack('<Hc0', #id, id)
  local head = pack(LEASED, RUNNING, 0, claim.flags, marks, priority, 0, number_, attempt, fence, n, lost, timeouts,
    shared.till, claim.lease_for, now)
  hset('at', seq, head .. name .. shared.holder .. shortened(record:sub(at) .. line, n))
  lines[#lines + 1] = name .. line
  zset(lane.name, seq, false)
  zset('lease', seq, shared.till)
  tally(number_, priority, QUEUED, -1)
  tally(number_, priority, RUNNING, 1)
  return head
end

local function claim_all(claim)
  local due, expired, dry = promote(PER_CLAIM), 0, false
  local seqs, heads, lines_ = {}, {}, {}
  if has(claim.flags, 128) then
    claim.flags = claim.flags - 128
    taken_before(claim, seqs)
    for i = 1, #seqs do heads[i] = head_of(hget('at', seqs[i])) end
  end
  for i = 1, #claim.queues do lines_[i] = open_line(claim, i, claim.limit - #seqs) end
  local holder = pack(HELD, #claim.worker, claim.worker, #claim.call, claim.call, 0, '')
  local shared = {
    till = now + claim.lease_for, holder = pack('<Hc0', #holder, holder),
    by = pack('<Hc0I4c0', #claim.worker, claim.worker, 0, ''),
  }
  while #seqs < claim.limit and expired < PER_CLAIM do
    local line, at = next_line(lines_)
    if not line then
      dry = true
      break
    end
    local lane = line.lanes[at]
    local seq = lane.members[lane.at]
    local marks = known.at[seq]:byte(4)
    if marks >= EXPIRY and tonumber(call('ZSCORE', P .. 'expiring', seq)) <= now then
      expire(job_of(seq))
      expired = expired + 1
    else
      heads[#seqs + 1] = lease(claim, lane, seq, shared)
      seqs[#seqs + 1] = seq
      line.room = line.room - 1
      line.served = line.served + 1
    end
    line.best = nil
    if not step(lane) then table.remove(line.lanes, at) end
  end
  local again = not dry or due == PER_CLAIM
  local wait = #seqs < claim.limit and next_in() or false
  flush()
  local jobs, checkpoints = {}, {}
  fetch('job', seqs)
  for i = 1, #seqs do
    jobs[i] = known.job[seqs[i]]
    if has(heads[i]:byte(4), CHECKPOINT) then checkpoints[#checkpoints + 1] = hget('checkpoint', seqs[i]) end
  end
  return { seqs, heads, jobs, checkpoints, wait, again and 1 or 0 }
end
