-- Returns the time, the version of the namespace and the oldest version that can use it. A new namespace gets the client's.
-- First publishes a message that nobody receives: scripts publish at their end, and a user without the permission for it
-- must be refused before anything is written.
call('PUBLISH', P .. 'wake:', '')
local needs = arg()
if tonumber(call('HGET', META, 'version') or 0) < VERSION then
  call('HSET', META, 'version', VERSION, 'needs', needs)
end
return { stamp, VERSION }
