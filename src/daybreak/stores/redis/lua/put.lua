-- Records: settings and other small values, written with an optional check of the revision.

-- kind, name, expected revision (empty: any), value (empty: delete), settings in it for scripts, and the event to publish
-- (empty: none); then whether jobs come with it, and these.
function M.read_put()
  local record = { kind = arg(), name = arg(), expect = arg(), value = arg(), settings = arg(), event = arg() }
  if number() == 1 then record.batch = M.read_specs() end
  return record
end

-- Returns the new revision as text; '0' if the expected revision did not match and nothing was written.
function M.put(record)
  local name = 'records:' .. record.kind
  if record.expect ~= '' then
    local existing = M.hget(name, record.name)
    local revision = existing and unpack_from('<d', existing) or 0
    if revision ~= tonumber(record.expect) then return '0' end
  end
  -- All records share one sequence, so a record that was deleted and written again never repeats a revision.
  local revision = call('HINCRBY', META, 'revision', 1)
  if record.event ~= '' then -- an event of no job
    M.add_to_feed('', record.event:sub(1, 4) .. pack('<I4dd', 0, wall, NONE) .. record.event:sub(5))
  end
  M.hset(name, record.name, record.value ~= '' and pack('<d', revision) .. record.value)
  -- No watch waits for the records by which workers show that they are alive, for the logs of jobs and their stacks.
  if record.kind ~= 'worker' and record.kind ~= 'stack' and record.kind:sub(1, 3) ~= 'log' then
    call('HSET', META, 'set', revision)
  end
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
  elseif record.kind == 'request' and record.value ~= '' then
    M.wake('worker:' .. (record.name:match('^(.*) ') or ''))
  elseif record.kind == 'schedule' then
    M.wake('schedules')
  elseif record.kind == 'active saga' then
    M.wake('sagas')
  end
  if record.batch then M.insert_all(record.batch, false) end
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
