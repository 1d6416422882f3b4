-- Writes the version of this program into a namespace that is new or of an older version. (The prelude has refused a newer
-- one.) Returns the time.
-- First publishes a message that nobody receives: scripts publish at their end, and a user without the permission for it
-- must be refused before anything is written.
call('PUBLISH', P .. 'wake:', '')
local needs = arg()
if tonumber(call('HGET', META, 'version') or 0) < VERSION then
  call('HSET', META, 'version', VERSION, 'needs', needs)
end
return { stamp, VERSION }
