-- Records: settings and other small things, compared by revision when they are written.

-- kind, name, expected revision (empty: any), value, what scripts need to know of it, and the event that tells of it
-- (empty: none). Empty values delete.
function M.read_put()
  return { kind = arg(), name = arg(), expect = arg(), value = arg(), settings = arg(), event = arg() }
end

-- The revision it got, as text; '0' if it had changed and nothing was written.
function M.put(record)
  local name = 'records:' .. record.kind
  if record.expect ~= '' then
    local there = M.hget(name, record.name)
    local revision = there and unpack_from('<d', there) or 0
    if revision ~= tonumber(record.expect) then return '0' end
  end
  -- One series of revisions for all records: one that was deleted and written anew never has an old number.
  local revision = call('HINCRBY', META, 'revision', 1)
  if record.event ~= '' then -- of no job
    M.tell_feed('', record.event:sub(1, 4) .. pack('<I4dd', 0, wall, NONE) .. record.event:sub(5))
  end
  M.hset(name, record.name, record.value ~= '' and pack('<d', revision) .. record.value)
  if record.kind ~= 'worker' then call('HSET', META, 'set', revision) end
  if record.kind == 'queue' then
    M.hset('settings', record.name, record.settings ~= '' and record.settings)
    M.forget_settings(record.name)
    M.wake_work(record.name)
  elseif record.kind == 'resource' then
    M.set_up(record.name, record.settings)
  elseif record.kind == 'gate' then
    M.set_gate(record.name, record.settings)
  elseif record.kind == 'health' then
    M.set_health(record.name, record.settings)
  end
  return text(revision)
end

function M.read_puts()
  local puts = {}
  for i = 1, number() do puts[i] = M.read_put() end
  return puts
end

function M.put_all(puts)
  local answers = {}
  for i = 1, #puts do answers[i] = M.put(puts[i]) end
  return answers
end
