-- The records of a kind, or the one of a name.
local kind, name = arg(), arg()
if number() == 1 then
  return { text(server), { name, call('HGET', P .. 'records:' .. kind, name) } }
end
return { text(server), call('HGETALL', P .. 'records:' .. kind) }
