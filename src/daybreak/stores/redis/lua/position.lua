-- How many jobs of its queue come before a queued job, or wait before a blocked job for the same resource; -1 if the job
-- is neither.
local seq = M.hget('id', arg())
local job = seq and M.job_of(seq)
if not job or (job.state ~= QUEUED and job.state ~= BLOCKED) then return { stamp, -1 } end
local resource = job.state == BLOCKED and M.blocked_on(job)
local lanes, ahead = M.lanes_of(M.queue_of(job.lane)), 0
local score = text(job.x)
for i = 1, #lanes do
  local name = P .. (resource and M.waiting_set(resource, lanes[i]) or 'queued:' .. text(lanes[i]))
  local low, high = call('ZCOUNT', name, '-inf', '(' .. score), call('ZCOUNT', name, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if call('ZRANGE', name, middle, middle)[1] < seq then low = middle + 1 else high = middle end
  end
  ahead = ahead + low
end
return { stamp, ahead }
