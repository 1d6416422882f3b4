-- Forget known results, one chunk: those of some flights, of a task, or of all.
local task, limit = arg(), number()
local flights = {}
for i = 1, number() do flights[i] = arg() end
M.begin()
local dropped, again = M.uncache(flights, task ~= '' and task or nil, limit)
M.finish_script()
return { stamp, dropped, again and 1 or 0 }
