-- What time alone does to jobs that wait.

-- Queue what is due; a bounded number, so that a million due at once is no giant script.
function M.promote(limit)
  local due = call('ZRANGEBYSCORE', P .. 'due:steady', '-inf', text(now), 'LIMIT', 0, limit)
  if #due < limit then
    local wall = call('ZRANGEBYSCORE', P .. 'due:wall', '-inf', text(now), 'LIMIT', 0, limit - #due)
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
  end
  M.flush()
  return #due
end

function M.first_of(name)
  local first = call('ZRANGE', P .. name, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2]) or nil
end

-- Microseconds until the next delayed job falls due, as text; false when there is none.
function M.next_in()
  local steady, wall = M.first_of('due:steady'), M.first_of('due:wall')
  local first = steady and wall and math.min(steady, wall) or steady or wall
  return first and text(math.max(0, first - now)) or false
end
