-- The server's clock jumped: let steady time go on as if it had not, by another offset. Only if the offset is the one
-- under which the jump was seen, so that of all who saw it one corrects it. A jump ahead is refused if others have
-- testified (reap.lua) that the clock ran evenly, and what their testimony leaves out is too short for it: then whoever
-- asks stood still himself. Replies 1 if it was corrected, 2 if it was refused, 0 if someone else corrected it before.
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
