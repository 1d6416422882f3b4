-- What time alone decides: jobs that waited too long expire, delayed ones fall due.
local limit = number()
begin()
local overdue = call('ZRANGEBYSCORE', P .. 'expiring', '-inf', text(now), 'LIMIT', 0, limit)
fetch_jobs(overdue)
for i = 1, #overdue do expire(job_of(overdue[i])) end
flush()
local due = promote(limit)
finish_script()
return { text(server), due, #overdue, next_in() }
