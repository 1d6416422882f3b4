-- Changes that happen by time alone: jobs expire, delayed jobs fall due.
local limit = number()
parts.time()
M.begin()
local overdue = call('ZRANGEBYSCORE', P .. 'expiring', '-inf', text(now), 'LIMIT', 0, limit)
M.fetch('at', overdue)
for i = 1, #overdue do M.expire(M.job_of(overdue[i])) end
M.flush()
local due = M.promote(limit)
if next(freed) then M.offer_freed() end
M.finish_script()
return { stamp, due, #overdue, M.next_in(), looks.landing and 1 or 0 }
