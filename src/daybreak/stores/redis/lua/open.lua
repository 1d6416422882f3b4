-- Returns the time, the version of the namespace and the oldest version that can use it. A new namespace gets the client's.
-- First publishes a message that nobody receives: scripts publish at their end, and a user without the permission for it
-- must be refused before anything is written.
call('PUBLISH', P .. 'wake:', '')
local version, needs = arg(), arg()
local found = call('HMGET', META, 'version', 'needs')
if not found[1] or tonumber(found[1]) < tonumber(version) then
  call('HSET', META, 'version', version, 'needs', needs)
  found = { version, needs }
end
return { stamp, found[1], found[2] }
