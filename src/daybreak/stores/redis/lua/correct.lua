-- The server's clock jumped: change the offset so that steady time continues as if it had not. Only if the offset is still
-- the one under which the jump was seen, so that only one of all processes that saw the jump corrects it. A jump ahead is
-- refused if other processes have reported (reap.lua) that the clock ran evenly and the time that their report does not
-- cover is too short for the jump: then not the clock has jumped, but the caller was suspended.
-- Status: 1 corrected; 2 refused; 0 another process corrected it before.
local expected, corrected, since, seen = number(), number(), number(), number()
if offset ~= expected then return { stamp, 0 } end
local from, to = (call('HGET', META, 'even') or ''):match('^(%d+):(%d+)$')
if from then
  local unseen = math.max(0, tonumber(from) - since) + math.max(0, seen - tonumber(to))
  if corrected - expected > unseen + 5000000 then return { stamp, 2 } end
end
call('HSET', META, 'clock', text(corrected), 'corrected', text(shown))
call('HDEL', META, 'even')
return { text(shown) .. ':' .. text(corrected), 1 }
