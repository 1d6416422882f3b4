-- Is this namespace ours, and not too new? A new one gets our version. Answers the time, its version and what it needs.
-- First a word that nobody hears: scripts wake others last, and who may not is told before anything is written.
call('PUBLISH', P .. 'wake:', '')
local version, needs = arg(), arg()
local found = call('HMGET', META, 'version', 'needs')
if not found[1] or tonumber(found[1]) < tonumber(version) then
  call('HSET', META, 'version', version, 'needs', needs)
  found = { version, needs }
end
return { stamp, found[1], found[2] }
