-- The jobs that wait for a resource, and which of them may try when it is free.
--
-- waits:<resource>           lane -> the number of its jobs that wait for this resource
-- blocked:<lane>:<resource>  these jobs, in rank order
-- blocked:<lane>             the jobs of a lane that wait for any resource, in rank order
-- blocked                    all waiting jobs, by seq
local LOOK_AGAIN, PASSED_OVER_FOR = 10000000, 30000000

-- Plans when to offer a resource again, after `offered` jobs were let try; `more` might be able to.
local function plan(resource, gauge, offered, more)
  if now < gauge.shut_until then
    M.look_at(resource, gauge, gauge.shut_until)
  elseif more and offered > 0 then -- else the same jobs would be offered again
    M.look_at(resource, gauge, now)
  elseif M.is_full(gauge, 0) then
    M.look_at(resource, gauge, NONE) -- the job that gives back a slot offers it
  else
    -- The rate forbids a start; or there are too few slots, and some will be given back.
    local early = gauge.every > 0 and M.early(gauge) + offered * gauge.every or 0
    M.look_at(resource, gauge, now + (early > 0 and early or LOOK_AGAIN))
  end
end

-- -- settings ---------------------------------------------------------------------------------------------------------

function M.set_up(resource, settings)
  local gauge = M.gauge(resource)
  local every = gauge.every
  gauge.slots, gauge.every, gauge.burst, gauge.most = NONE, 0, 1, NONE
  if settings ~= '' then gauge.slots, gauge.every, gauge.burst, gauge.most = unpack_from('<dddd', settings) end
  if gauge.every ~= every then gauge.taken_at = 0 end -- earlier starts were counted at another rate
  freed[resource] = true
end

function M.set_health(resource, settings)
  M.spare(M.gauge(resource), settings ~= '' and unpack_from('<d', settings) or 0)
  freed[K.RETRIES_OF .. resource] = true
end

function M.set_gate(resource, settings)
  local gauge, shut_for = M.gauge(resource), 0
  gauge.probes = NONE
  if settings ~= '' then shut_for, gauge.probes = unpack_from('<dd', settings) end
  gauge.shut_until = shut_for ~= 0 and now + shut_for or 0
  if gauge.kept_for ~= K.NOBODY and shut_for ~= 0 then -- a shut resource must not hold back the slots of others
    local job = M.job_of(gauge.kept_for)
    M.release_reservation(M.needs_of(job.needs), job.seq)
  end
  freed[resource] = true
end

-- -- waiting ----------------------------------------------------------------------------------------------------------

-- The name of what a job waits for: one of its resources, or the retries of one.
function M.name_of(needs, on)
  if on <= K.RETRIES then return needs[on].resource end
  return K.RETRIES_OF .. needs[on - K.RETRIES].resource
end

-- The failing resource of a name 'retries of <resource>'; nil for other names.
local function spared_by(cause)
  local size = #K.RETRIES_OF
  return cause:sub(1, size) == K.RETRIES_OF and cause:sub(size + 1) or nil
end

function M.blocked_on(job)
  if M.has(job.marks, K.FOLLOWS) then return M.flight_cause(job) end
  return M.name_of(M.needs_of(job.needs), job.on)
end

-- The needs of a blocked job that waits for one of them; nil if it waits for the result of its flight.
function M.waited_needs(job)
  return not M.has(job.marks, K.FOLLOWS) and M.needs_of(job.needs) or nil
end

function M.waiting_set(resource, lane) return 'blocked:' .. text(lane) .. ':' .. resource end

-- Adds a job to those that wait for a resource or a flight; a score of false removes it. A flight has no `needs`.
function M.wait_for(resource, needs, lane, seq, score)
  local waits, field, by = 'waits:' .. resource, text(lane), score and 1 or -1
  local count = tonumber(M.hget(waits, field) or 0) + by
  M.zset(M.waiting_set(resource, lane), seq, score)
  M.zset('blocked:' .. field, seq, score)
  M.zset('blocked', seq, score and tonumber(seq))
  M.hset(waits, field, count > 0 and text(count))
  if not needs then return end
  local gauge = M.gauge(resource)
  gauge.waiting = gauge.waiting + by
  if needs.is_fail_fast then gauge.fail_fast = gauge.fail_fast + by end
end

-- Plans when to offer the retries of a failing resource again.
local function plan_retries(cause, spared, offered, more)
  if more and offered > 0 and now >= spared.sparing_until then
    M.look_at(cause, M.gauge(cause), now)
  elseif now >= spared.sparing_until then
    M.look_at(cause, M.gauge(cause), now + LOOK_AGAIN)
  else
    -- A retry that may start now was just offered: the next one may a second after its start.
    local next = now < spared.spare_at and spared.spare_at or now + K.ONE_RETRY_EACH
    M.look_at(cause, M.gauge(cause), math.min(spared.sparing_until, next))
  end
end

-- Lets a job wait for one of its resources, where claims do not see it. Its other resources are offered to other jobs.
function M.park(job, lacking)
  local resource = M.name_of(M.needs_of(job.needs), lacking)
  M.release_offers(job)
  freed[resource] = nil
  M.leave(job)
  job.state, job.on = BLOCKED, lacking
  if job.since == NONE then job.since = now end
  M.change(job, K.blocked, BLOCKED, '', cmsgpack.pack({ note = resource }))
  M.enter(job)
  M.save(job)
  if lacking > K.RETRIES then
    M.count(job.lane, job.priority, 'spared', 1, 0)
    plan_retries(resource, M.gauge(spared_by(resource)), 0, false)
  else
    M.reserve_for(job)
    plan(resource, M.gauge(resource), 0, false)
  end
end

-- Whether jobs that need fewer slots have overtaken this job for too long, and its resources can be reserved for it: no
-- job that precedes it has a reservation on them.
local function may_reserve_for(job)
  local needs = M.needs_of(job.needs)
  local is_hard_to_place = #needs > 1 or (#needs == 1 and needs[1].slots > 1)
  if not is_hard_to_place or job.since == NONE or now - job.since < PASSED_OVER_FOR then return false end
  for i = 1, #needs do
    local gauge = M.gauge(needs[i].resource)
    local limit = M.limit_of(gauge)
    if now < gauge.shut_until then return false end
    if limit >= 0 and (needs[i].slots > limit
      or (gauge.kept_for ~= K.NOBODY and not M.goes_before_kept(gauge, job.seq, job.priority))) then
      return false
    end
  end
  return true
end

-- Jobs that need few slots overtake jobs that need many. After a while freed slots are reserved: for the first such job in
-- rank, and for all of its resources or none. So no job waits forever, and no two jobs wait for each other.
function M.reserve_for(job)
  if not may_reserve_for(job) then return end
  local needs = M.needs_of(job.needs)
  for i = 1, #needs do
    local gauge = M.gauge(needs[i].resource)
    if M.limit_of(gauge) >= 0 then
      if gauge.kept_for ~= K.NOBODY then
        local other = M.job_of(gauge.kept_for)
        M.release_reservation(M.needs_of(other.needs), other.seq)
      end
      gauge.kept_for, gauge.kept_priority, gauge.kept = job.seq, job.priority, needs[i].slots
    end
  end
end

-- -- offering ---------------------------------------------------------------------------------------------------------

local function comes_before(one, other)
  if one.queue ~= other.queue then return M.is_before(one.queue, other.queue) end
  if one.task ~= other.task then return M.is_before(one.task, other.task) end
  return one.version < other.version
end

-- The lanes with jobs that wait for a resource or a flight, sorted by name, each with the number of its waiting jobs.
function M.waiting_lanes(resource, is_flight)
  -- Waiting jobs are read from the stored sets.
  if is_flight then M.flush_only('waits:' .. resource) else M.flush() end
  local found, lanes, fields = call('HGETALL', P .. 'waits:' .. resource), {}, {}
  for i = 1, #found, 2 do
    fields[#fields + 1] = found[i]
    lanes[#lanes + 1] = { lane = tonumber(found[i]), count = tonumber(found[i + 1]) }
    if is_flight then M.flush_only(M.waiting_set(resource, found[i])) end
  end
  local names = M.fetch('lane', fields)
  for i = 1, #lanes do
    local lane, packed, at, version = lanes[i], names[fields[i]], nil, nil
    lane.queue, at = unpack_from('<Hc0', packed)
    lane.task, version = packed:sub(at):match('^(.*)%z(%d+)$')
    lane.version = tonumber(version)
  end
  table.sort(lanes, comes_before)
  return lanes
end

-- Do not reserve slots for long for a job that no claim may take, for example because its queue is paused. Queue the job:
-- a claim that finds it reserves the slots again. If none has by the next check, others get them.
local function let_claim_decide(job)
  local needs = M.needs_of(job.needs)
  if job.state == QUEUED then
    M.release_reservation(needs, job.seq)
  elseif not needs.holder then
    M.unblock(job)
  end
end

function M.offer_due_resources()
  M.flush()
  local due = call('ZRANGEBYSCORE', P .. 'looks', '-inf', text(now), 'LIMIT', 0, K.OFFERED_AT_ONCE)
  local kept, is_kept = {}, {}
  for i = 1, #due do
    local seq = M.gauge(due[i]).kept_for
    if seq ~= K.NOBODY and not is_kept[seq] then kept[#kept + 1], is_kept[seq] = seq, true end
    freed[due[i]] = true
  end
  table.sort(kept, M.is_before)
  for i = 1, #kept do let_claim_decide(M.job_of(kept[i])) end
  M.offer_freed()
end

-- The first jobs of a lane that wait for a resource or a flight, at most `limit`.
function M.first_waiting(resource, lane, limit)
  local found = limit > 0 and call('ZRANGE', P .. M.waiting_set(resource, lane.lane), 0, limit - 1) or {}
  M.fetch('at', found)
  return found
end

local function fail_fast_waiters(resource)
  local lanes = M.waiting_lanes(resource)
  for i = 1, #lanes do
    local seqs = M.first_waiting(resource, lanes[i], K.OFFERED_AT_ONCE)
    for j = 1, #seqs do M.fails_fast(M.job_of(seqs[j])) end
  end
end

-- As `offer`, for retries that wait because their resource is failing.
local function offer_retries(cause, spared)
  local offered, more, lanes = 0, false, M.waiting_lanes(cause)
  local may_start = M.retries_of(spared)
  for i = 1, #lanes do
    local seqs = M.first_waiting(cause, lanes[i], may_start)
    for j = 1, #seqs do M.unblock(M.job_of(seqs[j])) end
    offered, more = math.max(offered, #seqs), more or lanes[i].count > may_start
  end
  if M.gauge(cause).waiting > 0 then
    plan_retries(cause, spared, offered, more)
  else
    M.look_at(cause, M.gauge(cause), NONE)
  end
  return offered > 0
end

-- Lets the best-ranked jobs of every lane try, as many as there is room for. Every lane, so that a paused queue or a task
-- without a worker does not hold slots that others could use.
function M.offer(resource)
  local gauge, offered, more, spared = M.gauge(resource), 0, false, spared_by(resource)
  if spared then return offer_retries(resource, M.gauge(spared)) end
  if now >= gauge.shut_until then
    local lanes = M.waiting_lanes(resource)
    for i = 1, #lanes do
      local offered_count, rest = M.offer_lane(resource, gauge, lanes[i])
      offered, more = math.max(offered, offered_count), more or rest
    end
  elseif gauge.fail_fast > 0 then
    fail_fast_waiters(resource)
  end
  if gauge.waiting > 0 then
    plan(resource, gauge, offered, more)
  else
    M.look_at(resource, gauge, NONE)
  end
  return offered > 0
end

-- Reads the next waiting jobs: as many as there is room for, then twice as many.
local function read_more(name, seqs, gauge, starts)
  local limit, n = M.limit_of(gauge), #seqs
  local room = math.min(starts, limit >= 0 and limit - gauge.used or K.OFFERED_AT_ONCE)
  local found = call('ZRANGE', P .. name, n, n + math.max(n, room, 1) - 1)
  M.fetch('at', found)
  for i = 1, #found do seqs[n + i] = found[i] end
end

local function slots_of(job, resource)
  local needs = M.needs_of(job.needs)
  for i = 1, #needs do
    if needs[i].resource == resource then return needs[i].slots end
  end
  return 0
end

-- Offers to one lane; returns how many jobs may try, and whether jobs that were not examined might, too.
function M.offer_lane(resource, gauge, lane)
  local name, seqs = M.waiting_set(resource, lane.lane), {}
  local starts, offered_count, slots_offered = M.starts_of(gauge), 0, 0
  for i = 1, math.min(lane.count, K.OFFERED_AT_ONCE) do
    if offered_count >= starts or M.is_full(gauge, slots_offered) then return offered_count, false end
    if i > #seqs then read_more(name, seqs, gauge, starts) end
    local job = M.job_of(seqs[i])
    local slots = slots_of(job, resource)
    if M.has(job.marks, K.EXPIRY) and M.is_overdue(job.seq) then
      M.expire(job)
    elseif M.needs_of(job.needs).holder then
      M.grant(job)
      starts = math.min(starts, offered_count + M.starts_of(gauge))
    elseif M.lacks(gauge, slots_offered + slots, job.seq, job.priority) then
      if offered_count == 0 and may_reserve_for(job) then
        M.unblock(job) -- the claim that finds it reserves its slots, which proves that a worker would run it
        return 1, false
      end
    else
      slots_offered, offered_count = slots_offered + slots, offered_count + 1
      M.unblock(job)
    end
  end
  return offered_count, lane.count > K.OFFERED_AT_ONCE
end

function M.unblock(job)
  M.leave(job)
  job.state = QUEUED
  M.change(job, K.unblocked, QUEUED, '')
  M.enter(job)
  M.save(job)
end

-- -- holders ----------------------------------------------------------------------------------------------------------

-- Starts a job that its own holder runs, and wakes the holder; or lets it wait for the next resource.
function M.grant(job)
  local needs = M.needs_of(job.needs)
  local lacking = M.lacking(needs, job.seq, job.priority, job.attempt > 0)
  if not lacking then
    M.lease_to_holder(job, needs)
  elseif lacking ~= job.on then
    M.park(job, lacking)
  else
    M.reserve_for(job)
  end
end

function M.lease_to_holder(job, needs)
  local worker = needs.holder
  M.take_slots(needs, job.seq, job.attempt > 0)
  -- Its fence is higher than those of all earlier holders: what a lock protects is guarded by comparing fences.
  for i = 1, #needs do job.fence = math.max(job.fence, M.gauge(needs[i].resource).fence) end
  M.begin_lease(job, 0, needs.hold_for, pack('<Hc0I4c0', #worker, worker, 0, ''), pack(K.HELD, #worker, worker, 0, '', 0, ''))
  for i = 1, #needs do M.gauge(needs[i].resource).fence = job.fence end
  finals[#finals + 1] = M.size_of(job.id) .. job.id
end
