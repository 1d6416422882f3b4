-- Is this namespace ours, and not too new? A new one gets our version. Answers the time, its version and what it needs.
local version, needs = arg(), arg()
if call('HSETNX', META, 'version', version) == 1 then call('HSET', META, 'needs', needs) end
local found = call('HMGET', META, 'version', 'needs')
if tonumber(found[1]) < tonumber(version) then
  call('HSET', META, 'version', version, 'needs', needs)
end
return { text(server), found[1], found[2] }
