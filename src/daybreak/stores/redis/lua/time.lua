-- Changes that happen by time alone: delayed jobs fall due, resources are offered again.

local function first_look()
  if looks.is_stale then M.find_first_look() end
  return looks.first
end

-- Queues jobs that are due; at most `limit`, so that a million due jobs do not make one script run for long.
function M.promote(limit)
  local look = first_look()
  M.write_flights()
  if looks.landing then M.land_due(limit) end
  if next(freed) or (look and look <= now) then M.offer_due_resources() end
  local due = call('ZRANGEBYSCORE', P .. 'due:steady', '-inf', text(now), 'LIMIT', 0, limit)
  if #due < limit then
    local wall = call('ZRANGEBYSCORE', P .. 'due:wall', '-inf', text(wall), 'LIMIT', 0, limit - #due)
    for i = 1, #wall do due[#due + 1] = wall[i] end
  end
  if #due == 0 then return 0 end
  M.fetch('at', due)
  for i = 1, #due do
    local job = M.job_of(due[i])
    M.leave(job)
    job.state, job.clock, job.y = QUEUED, 0, NONE
    M.change(job, K.due, QUEUED, '')
    M.enter(job)
    M.save(job)
    if M.has(job.marks, K.FLIGHT) then M.join(job) end
  end
  M.flush()
  return #due
end

local function sooner(one, other)
  return one and other and math.min(one, other) or one or other
end

-- Microseconds until a job falls due or a resource must be offered again, as text; false if there is neither. 0 if flights
-- have followers to look after.
function M.next_in()
  M.write_flights()
  if looks.landing then return '0' end
  local by_wall = M.first_of('due:wall')
  local first = sooner(sooner(M.first_of('due:steady'), by_wall and by_wall - wall + now), first_look())
  return first and text(math.max(0, first - now)) or false
end
