-- The configured resources, and the gauges of those in use; all, or the one of a name.
local name = arg()
if number() == 1 then
  local is_set_up = call('HEXISTS', P .. 'records:resource', name) == 1
  return { stamp, is_set_up and { name } or {}, { name, call('HGET', P .. 'gauge', name) } }
end
return { stamp, call('HKEYS', P .. 'records:resource'), call('HGETALL', P .. 'gauge') }
