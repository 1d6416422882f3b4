-- The records of a kind: all, or the one of a name.
local kind, name = arg(), arg()
if number() == 1 then
  return { stamp, { name, call('HGET', P .. 'records:' .. kind, name) } }
end
return { stamp, call('HGETALL', P .. 'records:' .. kind) }
