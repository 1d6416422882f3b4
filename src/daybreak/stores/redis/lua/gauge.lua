-- Resources: their limits, what is in use, and what jobs need. The arithmetic is that of core/resource_gauge.py.
--
-- gauge  resource -> GAUGE: its settings, what is in use, the job (seq) for which slots are reserved and how many, how its
--        retries are limited, how many waiting jobs fail fast, and the wall time of the latest start by its rate (0:
--        unknown); a limit below 0 is none
--        'retries of <resource>' -> likewise; only `waiting`, `look` and `fail_fast` are used
-- looks  resources by the time at which they are offered again; `look` in meta is the first of these
local GAUGE = '<dddddddddddBdc16ddddd' -- submit.lua reads the first number, gauges.py the first four

function M.gauge(resource)
  local gauge = gauges[resource]
  if gauge then return gauge end
  local packed = M.hget('gauge', resource)
  if packed then
    gauge = {}
    gauge.most, gauge.used, gauge.waiting, gauge.shut_until, gauge.slots, gauge.every, gauge.burst, gauge.probes,
      gauge.tat, gauge.look, gauge.fence, gauge.kept_priority, gauge.kept, gauge.kept_for, gauge.sparing_until,
      gauge.credit, gauge.spare_at, gauge.fail_fast, gauge.taken_at = unpack_from(GAUGE, packed)
  else
    gauge = {
      most = NONE, used = 0, waiting = 0, shut_until = 0, slots = NONE, every = 0, burst = 1, probes = NONE, tat = 0,
      look = NONE, fence = 0, kept_priority = 0, kept = 0, kept_for = K.NOBODY, sparing_until = 0, credit = 0,
      spare_at = 0, fail_fast = 0, taken_at = 0,
    }
  end
  gauges[resource] = gauge
  return gauge
end

-- Whether a gauge equals that of a resource that nobody ever used, so that it need not be stored.
local function is_unused(gauge)
  return gauge.used == 0 and gauge.waiting == 0 and gauge.slots < 0 and gauge.every == 0 and gauge.most < 0
    and gauge.probes < 0 and gauge.shut_until == 0 and gauge.look < 0 and gauge.fence == 0 and gauge.tat == 0
    and gauge.kept_for == K.NOBODY and gauge.sparing_until == 0
end

local function pack_gauge(gauge)
  return pack(GAUGE, gauge.most, gauge.used, gauge.waiting, gauge.shut_until, gauge.slots, gauge.every, gauge.burst,
    gauge.probes, gauge.tat, gauge.look, gauge.fence, gauge.kept_priority, gauge.kept, gauge.kept_for,
    gauge.sparing_until, gauge.credit, gauge.spare_at, gauge.fail_fast, gauge.taken_at)
end

function M.write_gauges()
  for resource, gauge in pairs(gauges) do
    local packed = not is_unused(gauge) and pack_gauge(gauge)
    if packed ~= M.hget('gauge', resource) then M.hset('gauge', resource, packed) end
  end
  if looks.is_stale then M.find_first_look() end
end

-- The limit of slots. While a breaker probes, it is at most the number of probes.
function M.limit_of(gauge)
  if gauge.probes < 0 or gauge.slots < 0 then return math.max(gauge.probes, gauge.slots) end
  return math.min(gauge.probes, gauge.slots)
end

-- How long until the rate allows the next start; 0 or less if it is allowed now.
function M.early(gauge)
  return math.max(gauge.tat, now) - (math.max(gauge.burst, 1) - 1) * gauge.every - now
end

-- Whether a job precedes the one that has the reservation: it is more urgent, or equally urgent and older.
function M.goes_before_kept(gauge, seq, priority)
  if priority ~= gauge.kept_priority then return priority < gauge.kept_priority end
  return tonumber(seq) < tonumber(gauge.kept_for)
end

local function reserved_slots(gauge, seq, priority)
  if gauge.kept_for == K.NOBODY or gauge.kept_for == seq then return 0 end
  return M.goes_before_kept(gauge, seq, priority) and 0 or gauge.kept
end

function M.lacks(gauge, slots, seq, priority)
  if now < gauge.shut_until or (gauge.every > 0 and M.early(gauge) > 0) then return true end
  local limit = M.limit_of(gauge)
  -- The first probe may need more slots than there are probes, else such a job could never run.
  if gauge.probes >= 0 and gauge.used == 0 then limit = gauge.slots end
  return limit >= 0 and gauge.used + slots + reserved_slots(gauge, seq, priority) > limit
end

function M.is_full(gauge, slots_offered)
  local limit = M.limit_of(gauge)
  return limit >= 0 and gauge.used + slots_offered >= limit
end

-- How many jobs the rate allows to start now.
function M.starts_of(gauge)
  if gauge.every == 0 then return K.OFFERED_AT_ONCE end
  return math.min(K.OFFERED_AT_ONCE, math.max(0, math.floor(-M.early(gauge) / gauge.every) + 1))
end

-- -- limiting retries of a failing resource ---------------------------------------------------------------------------

local FIRST_ATTEMPTS_PER_RETRY, MIN_CREDIT, MAX_CREDIT = 10, -100, 1000

function M.spare(gauge, spare_for)
  if now >= gauge.sparing_until then gauge.credit, gauge.spare_at = 0, now + K.ONE_RETRY_EACH end
  gauge.sparing_until = spare_for ~= 0 and now + spare_for or 0
end

-- How many retries may start now.
function M.retries_of(gauge)
  if now >= gauge.sparing_until then return K.OFFERED_AT_ONCE end
  local paid = math.floor(gauge.credit / FIRST_ATTEMPTS_PER_RETRY)
  return math.min(K.OFFERED_AT_ONCE, math.max(paid, now >= gauge.spare_at and 1 or 0))
end

-- A lease begins while retries are limited.
local function charge_retry(resource, gauge, is_retry)
  gauge.spare_at = now + K.ONE_RETRY_EACH
  if is_retry then
    gauge.credit = math.max(gauge.credit - FIRST_ATTEMPTS_PER_RETRY, MIN_CREDIT)
    return
  end
  gauge.credit = math.min(gauge.credit + 1, MAX_CREDIT)
  -- One more retry is allowed now.
  if gauge.credit % FIRST_ATTEMPTS_PER_RETRY == 0 and gauge.credit > 0 then freed[K.RETRIES_OF .. resource] = true end
end

-- -- when to offer again ----------------------------------------------------------------------------------------------

function M.look_at(resource, gauge, at)
  if gauge.look == at then return end
  gauge.look, looks.is_stale = at, true
  M.zset('looks', resource, at ~= NONE and at)
end

function M.find_first_look()
  M.flush()
  looks.first, looks.is_stale = M.first_of('looks'), false
  if looks.first then
    call('HSET', META, 'look', text(looks.first))
  else
    call('HDEL', META, 'look')
  end
end

-- -- what jobs need ---------------------------------------------------------------------------------------------------

local IS_HELD, IS_FAIL_FAST = 1, 2
local needs_known = {} -- most jobs of a task have equal needs

local function unpack_needs(packed)
  local needs, resource, slots = {}, nil, nil
  local flags, hold_for, holder, at = unpack_from('<BdHc0', packed)
  if M.has(flags, IS_HELD) then needs.holder, needs.hold_for = holder, hold_for end
  needs.is_fail_fast = M.has(flags, IS_FAIL_FAST)
  while at <= #packed do
    resource, slots, at = unpack_from('<Hc0d', packed, at)
    needs[#needs + 1] = { resource = resource, slots = slots }
  end
  needs.free = pack(K.NEEDED, NONE, 0, #packed, packed) -- as stored for a job that does not wait
  return needs
end

function M.needs_of(packed)
  local needs = needs_known[packed]
  if not needs then
    needs = unpack_needs(packed)
    needs_known[packed] = needs
  end
  return needs
end

-- The needs in a record, and the position after them.
function M.needs_in(record, at)
  local _, _, packed, past = unpack_from(K.NEEDED, record, at)
  return M.needs_of(packed), past
end

-- The index of the first need that a job cannot have now, or whose retries are limited; nil if it can have all.
function M.lacking(needs, seq, priority, is_retry)
  for i = 1, #needs do
    local need = needs[i]
    if M.lacks(M.gauge(need.resource), need.slots, seq, priority) then return i end
  end
  if not is_retry then return nil end
  for i = 1, #needs do
    if M.retries_of(M.gauge(needs[i].resource)) == 0 then return K.RETRIES + i end
  end
  return nil
end

-- Ends a fail-fast job at an open breaker; returns whether it did.
function M.fails_fast(job)
  local needs = M.needs_of(job.needs)
  if not needs.is_fail_fast then return false end
  for i = 1, #needs do
    local resource = needs[i].resource
    if now < M.gauge(resource).shut_until then
      M.fail(job, '', K.failed, K.REASON_ERROR, 'the breaker of resource ' .. resource .. ' is open')
      return true
    end
  end
  return false
end

-- The resources for which as many jobs wait as their `max_waiting` allows.
function M.crowded(needs)
  local found = {}
  for i = 1, #needs do
    local gauge = M.gauge(needs[i].resource)
    if gauge.most >= 0 and gauge.waiting >= gauge.most then found[#found + 1] = needs[i].resource end
  end
  return found
end

function M.take_slots(needs, seq, is_retry)
  M.release_reservation(needs, seq)
  for i = 1, #needs do
    local resource = needs[i].resource
    local gauge = M.gauge(resource)
    gauge.used = gauge.used + needs[i].slots
    if gauge.every > 0 then
      gauge.tat = math.max(gauge.tat, now) + gauge.every
      gauge.taken_at = wall
    end
    if now < gauge.sparing_until then charge_retry(resource, gauge, is_retry) end
  end
end

-- Gives back the start of a lease that began at `started` and was never used, less the time from it to the latest start.
function M.give_starts(needs, started)
  for i = 1, #needs do
    local gauge = M.gauge(needs[i].resource)
    local since = gauge.taken_at - started
    if since >= 0 and since < gauge.every then gauge.tat = gauge.tat - (gauge.every - since) end
  end
end

function M.give_back(needs)
  for i = 1, #needs do
    local resource = needs[i].resource
    local gauge = M.gauge(resource)
    gauge.used = gauge.used - needs[i].slots
    freed[resource] = true
  end
end

function M.release_reservation(needs, seq)
  for i = 1, #needs do
    local resource = needs[i].resource
    local gauge = M.gauge(resource)
    if gauge.kept_for == seq then
      gauge.kept_for, gauge.kept_priority, gauge.kept = K.NOBODY, 0, 0
      freed[resource] = true
    end
  end
end

-- Passes on the slots that were reserved for a job or, if it is queued, offered to it.
function M.release_offers(job)
  local needs = M.needs_of(job.needs)
  M.release_reservation(needs, job.seq)
  if job.state == QUEUED then
    for i = 1, #needs do
      local resource = needs[i].resource
      freed[resource] = true
      if job.attempt > 0 then freed[K.RETRIES_OF .. resource] = true end
    end
  end
end

-- -- what was freed ---------------------------------------------------------------------------------------------------

-- Compares by bytes: Lua's own comparison depends on the server's locale.
function M.is_before(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = one:byte(i), other:byte(i)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- The first freed resource by name that has waiting jobs.
local function first_freed()
  local first
  for resource in pairs(freed) do
    local gauge = M.gauge(resource)
    if gauge.waiting == 0 then
      M.look_at(resource, gauge, NONE)
      freed[resource] = nil
    elseif not first or M.is_before(resource, first) then
      first = resource
    end
  end
  return first
end

-- Offers what this script freed to the jobs that wait for it; returns whether any job may try. Called before the end.
function M.offer_freed()
  local any_offered, resource = false, first_freed()
  while resource do
    freed[resource] = nil
    any_offered = M.offer(resource) or any_offered
    resource = first_freed()
  end
  M.flush() -- a claim reads the queued jobs from the stored sets
  return any_offered
end
