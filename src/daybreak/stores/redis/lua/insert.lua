-- Insert jobs in bulk; each gets its own answer. What jobs of one class have in common is sent and computed once.

local CLASS = '<BBBBdddd'
local NEW, DUPLICATE, CONFLICT, FULL, SPENT = 0, 1, 2, 3, 4
local BY_ID, BY_KEY, BY_UNIQUE, EVICTED = 1, 2, 3, 4
local NOT_URGENT, LOWEST_PRIORITY = 7, 10
local SHORTENED = 'its wait limit is shorter: the queue is nearly full' -- as in core/wait_limit.py
local REPLACE, RAISE, REFUSE = 2, 3, 4

-- The classes of jobs in this call, then the jobs in runs of one class: id, packed spec, ties, flight.
function M.read_specs()
  local classes, class_of_job, ids, bodies, ties, flights, n = {}, {}, {}, {}, {}, {}, 0
  for i = 1, number() do
    local class = { queue = arg(), task = arg(), tail = arg(), needs = arg(), accepted = 0 }
    local batch = arg() -- empty: none; else its first character says that there is one
    class.batch = batch ~= '' and batch:sub(2)
    class.priority, class.conflict, class.flies, class.clock, class.due, class.expires, class.keep, class.keep_failed =
      unpack_from(CLASS, arg())
    if class.needs == '' then class.needs = nil end
    classes[i] = class
  end
  for _ = 1, number() do
    local class = classes[number()]
    for _ = 1, number() do
      n = n + 1
      class_of_job[n], ids[n], bodies[n] = class, arg(), arg()
      if class.conflict ~= 0 then ties[n] = arg() end
      if class.flies ~= 0 then flights[n] = arg() end
    end
  end
  return { classes = classes, class_of_job = class_of_job, ids = ids, bodies = bodies, ties = ties, flights = flights }
end

-- Returns a packed answer, and the id of an existing job; for a job that was found by key, with the digest of its code.
function M.answer(verdict, same, job, seq, state, code)
  if same == BY_KEY then job = job .. '\0' .. (code or '') end
  return pack('<BBBd', verdict, same, state, seq), same > BY_ID and job or nil
end

function M.answer_for(verdict, same, job)
  local code
  if same == BY_KEY then code = M.code_of(job) end
  return M.answer(verdict, same, job.id, tonumber(job.seq), job.state, code)
end

-- -- ties: keys, unique names, run and owner --------------------------------------------------------------------------

-- The key, the digest of the content, the unique name and whether a running job gives that up, run, owner, and the digest
-- of the code.
function M.read_ties(packed)
  local flags, key, digest, unique, run_, owner, code = unpack_from('<BHc0Hc0Hc0Hc0Hc0Hc0', packed)
  return {
    gives_up = M.has(flags, 16), code = code,
    key = M.has(flags, 1) and key or nil, digest = digest, unique = M.has(flags, 2) and unique or nil,
    run = M.has(flags, 4) and run_ or nil, owner = M.has(flags, 8) and owner or nil,
  }
end

function M.by_of(class) return (unpack_from('<Hc0', class.tail, 13)) end

function M.keep_holder(holder, class, ties)
  if class.conflict == REFUSE then return M.answer_for(CONFLICT, BY_UNIQUE, holder) end
  if class.conflict == RAISE and class.priority < holder.priority and holder.state ~= RUNNING then
    M.rerank(holder, class.priority, M.by_of(class))
  end
  if ties.key then -- from now on this key belongs to the holder, even after it has ended
    M.answer_for_key(holder, ties, now)
    M.save(holder)
  end
  return M.answer_for(DUPLICATE, BY_UNIQUE, holder)
end

function M.known_key(ties)
  local existing = M.hget('key', ties.key)
  if not existing then return nil end
  local id, _, at = unpack_from('<Hc0d', existing)
  local is_same = existing:sub(at) == ties.digest
  local seq = M.hget('id', id)
  local job = seq and M.job_of(seq)
  if job then return M.answer_for(is_same and DUPLICATE or CONFLICT, BY_KEY, job) end
  if M.is_spent(ties.key) then return M.answer(is_same and SPENT or CONFLICT, BY_KEY, id, 0, NO_STATE) end
  ties.was_spent = true -- and its retention is over
  return nil
end

function M.answer_for_key(job, ties, at)
  M.assign_key(job, ties.key, ties.digest, at)
  if ties.was_spent then M.zset('dropped', ties.key, false) end
end

function M.accept_ties(seq, id, ties)
  local job = { seq = seq, id = id, marks = 0 }
  if ties.unique or ties.key then M.tie(job, ties.unique, {}, ties.gives_up, ties.code) end
  if ties.unique then M.hset('unique', ties.unique, seq) end
  if ties.key then M.answer_for_key(job, ties, now == wall and NONE or now) end
  M.belong(seq, ties)
  return job.marks
end

function M.belong(seq, ties)
  if ties.run or ties.owner then
    local run_, owner = ties.run and '=' .. ties.run or '', ties.owner and '=' .. ties.owner or ''
    M.hset('belongs', seq, pack('<Hc0Hc0', #run_, run_, #owner, owner))
    if ties.run then M.moves('run:' .. ties.run)[seq] = seq end
    if ties.owner then M.moves('owner:' .. ties.owner)[seq] = seq end
  end
end

-- -- full and nearly full queues --------------------------------------------------------------------------------------

-- Writes what the batch has done so far, so that it can be read from the stored sets. Its classes are prepared again.
function M.flush_batch(batch)
  M.flush()
  for i = 1, #batch.classes do batch.classes[i].is_prepared = false end
  batch.new = { id = M.changes('id'), at = M.changes('at'), job = M.changes('job') }
end

-- Tells that a queue is full, unless that was told since it last had room: as in core/queue_marks.py.
function M.tell_full(class)
  if M.hget('records:full queue', class.queue) then return end
  if not M.put then parts.put() end
  local by, tail = M.by_of(class), cmsgpack.pack({ queue = class.queue, note = class.queue })
  M.put({
    kind = 'full queue', name = class.queue, expect = '0', value = '\0{}', settings = '',
    event = pack('<BBBBdI4Hc0I4c0', K.queue_full, NO_STATE, 0, NO_PRIORITY, NONE, NO_ATTEMPT, #by, by, #tail, tail),
  })
end

-- The job that makes room for one of this class: of the queued and blocked jobs of its queue the last in rank, if it is less
-- urgent. At a crowded resource only a job that waits for it makes room; at two of them no job can.
function M.find_victim(batch, class, crowded)
  if class.priority >= LOWEST_PRIORITY or #crowded > 1 then return nil end
  M.flush_batch(batch)
  local lanes, score, seq = M.lanes_of(class.queue), nil, nil
  for i = 1, #lanes do
    local lane, names = text(lanes[i]), nil
    if crowded[1] then names = { M.waiting_set(crowded[1], lanes[i]) } else names = { 'queued:' .. lane, 'blocked:' .. lane } end
    for j = 1, #names do
      local last = call('ZRANGE', P .. names[j], -1, -1, 'WITHSCORES')
      local last_score = last[2] and tonumber(last[2])
      if last_score and (not seq or last_score > score or (last_score == score and last[1] > seq)) then
        score, seq = last_score, last[1]
      end
    end
  end
  local job = seq and M.job_of(seq)
  return job and job.priority > class.priority and job or nil
end

-- As in core/wait_limit.py, but divided in two steps: the product may exceed 2^53.
local function cut(expires, unfinished, capacity)
  local over, parts_ = math.min(math.max(5 * unfinished - 4 * capacity, 0), capacity), 4 * capacity
  if over == 0 then return expires end
  local rest = expires % parts_
  return expires - (expires - rest) / parts_ * 3 * over - math.floor(rest * 3 * over / parts_)
end

-- The first event of a job whose expiry was shortened.
local function shortened_line(class)
  local fence, attempt, by, packed = unpack_from('<dI4Hc0I4c0', class.tail)
  local tail = cmsgpack.unpack(packed)
  tail.note = SHORTENED
  packed = cmsgpack.pack(tail)
  return class.line:sub(1, -#class.tail - 1) .. pack('<dI4Hc0I4c0', fence, attempt, #by, by, #packed, packed)
end

-- When a job expires; and its first event, if the expiry was shortened.
function M.wait_limit(class, settings)
  if not settings.capacity or class.priority < NOT_URGENT then return class.expiry, nil end
  local limit = cut(class.expires, M.counted(class.queue, SCHEDULED, SUSPENDED), settings.capacity)
  if limit >= class.expires then return class.expiry, nil end
  M.count(class.lane, class.priority, 'shortened', 1, 0)
  return text(now + limit), shortened_line(class)
end

-- -- accepting --------------------------------------------------------------------------------------------------------

-- Computes what all new jobs of a class have in common.
function M.prepare(class, settings)
  class.is_prepared, class.lane = true, M.lane_of(class.queue, class.task)
  class.state, class.x, class.y, class.timed = QUEUED, M.score_of(settings, class.priority, now), NONE, 0
  if class.clock ~= 0 then
    local due = class.clock == K.WALL and class.due or now + class.due
    if due > (class.clock == K.WALL and wall or now) then class.state, class.timed, class.y = SCHEDULED, class.clock, due end
  end
  class.needed = class.needs and M.prepare_needs(class) or ''
  if class.state == QUEUED then
    class.set, class.score = M.moves('queued:' .. text(class.lane)), text(class.x)
    class.company = class.batch and M.moves('company:' .. text(class.lane) .. ':' .. class.batch)
  elseif class.state == SCHEDULED then
    class.set, class.score = M.moves(K.DUE[class.timed]), text(class.y)
  end
  class.all = M.moves('all:' .. text(class.lane))
  class.expiring = class.expires >= 0 and M.moves('expiring')
  class.expiry = class.expires >= 0 and text(now + class.expires)
  class.heads = {}
  class.prefix = pack('<ddd', wall, class.keep, class.keep_failed)
  class.marks = (class.expiring and K.EXPIRY or 0) + (class.needs and K.NEEDS or 0) + (class.flies ~= 0 and K.FLIGHT or 0)
    + (class.batch and K.BATCH or 0)
  M.accept(class, 0)
  if not class.waits_for and (class.flies == 0 or class.state == SCHEDULED) then M.wake_work(class.queue) end
end

function M.prepare_needs(class)
  class.since, class.on = NONE, 0
  if class.state == QUEUED then class.state = M.ready_state(class) end
  if class.state == BLOCKED then class.waits_for = M.name_of(M.needs_of(class.needs), class.on) end
  return M.needed(class)
end

-- The head of jobs of a class that have these marks besides those of the class. The event is the same for all.
function M.accept(class, marks)
  class.heads[marks], class.line =
    accepted(class.state, class.marks + marks, class.priority, class.timed, class.lane, class.x, class.y, wall, class.tail)
  return class.heads[marks]
end

-- Whether a job is completed at once, because its result is known: then it takes no room.
local function is_known(class, flight)
  if not flight or (class.clock ~= 0 and class.due > (class.clock == K.WALL and wall or 0)) then return false end
  local _, _, name = unpack_from('<ddHc0', flight)
  return M.is_known(name)
end

-- Returns the answer if a job cannot be inserted; else the unfinished job that it replaces and the job that is shed for
-- it, if any.
function M.find_conflict(batch, id, class, ties, settings, bounded)
  local holder, victim
  if ties and ties.key then
    local verdict, other = M.known_key(ties)
    if verdict then return verdict, other end
  end
  if ties and ties.unique then
    local held = M.hget('unique', ties.unique)
    holder = held and M.job_of(held)
    if holder and ties.gives_up and holder.state == RUNNING then holder = nil end -- a running job gives up its unique name
    if holder and not (class.conflict == REPLACE and holder.state ~= RUNNING) then
      return M.keep_holder(holder, class, ties)
    end
  end
  if bounded then
    local freed_places = holder and M.queue_of(holder.lane) == class.queue and 1 or 0
    local is_full = settings.capacity
      and M.counted(class.queue, SCHEDULED, SUSPENDED) - freed_places >= settings.capacity
    local crowded = class.needs and M.crowded(M.needs_of(class.needs)) or {}
    if is_full then M.tell_full(class) end
    if is_full or crowded[1] then
      victim = settings.sheds and M.find_victim(batch, class, crowded)
      if not victim then return M.answer(FULL, 0, id, 0, NO_STATE) end
    end
  end
  return nil, nil, holder, victim
end

-- Ends the replaced job and the shed job, which may be the same.
function M.remove_others(id, class, holder, victim)
  local by = M.by_of(class)
  if holder then
    local tail = cmsgpack.pack({ note = 'replaced', replaced_by = id })
    M.finish(holder, CANCELLED, by, K.cancelled, nil, 'replaced', tail)
  end
  if victim and not (holder and holder.seq == victim.seq) then
    local note = 'pushed out by ' .. id
    M.finish(victim, FAILED, by, K.shed, K.REASON_SHED, note, cmsgpack.pack({ note = note, replaced_by = id }))
  end
end

-- Inserts all jobs. Without `bounded` none is refused for a full queue: jobs that come with a settlement or record are part
-- of it.
-- Returns the first new seq, the answers, and the ids of existing and shed jobs. If all jobs are new and of one class, the
-- answers are only their state.
function M.insert_all(batch, bounded)
  local ids, class_of_job, answers, others, evicted, joined = batch.ids, batch.class_of_job, {}, {}, {}, {}
  if #ids == 0 then return { 0, '', others } end
  local seq_of_id, at, jobs = M.fetch('id', ids), M.cache('at'), M.cache('job')
  batch.new = { id = M.changes('id'), at = M.changes('at'), job = M.changes('job') }
  local last = tonumber(call('HGET', META, 'seq') or 0)
  local before, format, is_plain = last, string.format, #batch.classes == 1
  for i = 1, #ids do
    local class, id, ties = class_of_job[i], ids[i], batch.ties[i]
    local verdict, other, holder, victim
    if seq_of_id[id] then
      verdict, other = M.answer_for(DUPLICATE, BY_ID, M.job_of(seq_of_id[id]))
    else
      local settings = M.settings_of(class.queue)
      ties = ties and M.read_ties(ties)
      if ties or settings.capacity or class.needs then
        local is_bounded = bounded and not is_known(class, batch.flights[i])
        verdict, other, holder, victim = M.find_conflict(batch, id, class, ties, settings, is_bounded)
      end
      if not verdict then
        if holder or victim then M.remove_others(id, class, holder, victim) end
        if not class.is_prepared then M.prepare(class, settings) end
        last = last + 1
        local seq = format(K.SEQ, last)
        local marks, line = ties and M.accept_ties(seq, id, ties) or 0, nil
        if class.expiring then class.expiring[seq], line = M.wait_limit(class, settings) end
        if class.flies ~= 0 then M.hset('flies', seq, batch.flights[i]) end
        if class.batch then M.hset('batch', seq, class.batch) end
        local size = M.size_of(id)
        at[seq] = (class.heads[marks] or M.accept(class, marks)) .. size .. id .. '\0\0' .. class.needed
          .. (line or '')
        jobs[seq] = class.prefix .. batch.bodies[i]
        seq_of_id[id] = seq
        local new_at, new_job, new_id = batch.new.at, batch.new.job, batch.new.id
        new_at[#new_at + 1], new_job[#new_job + 1], new_id[#new_id + 1] = seq, seq, id
        class.all[seq] = seq
        if class.waits_for then
          M.wait_for(class.waits_for, M.needs_of(class.needs), class.lane, seq, class.x)
        else
          class.set[seq] = class.score
          if class.company then class.company[seq] = class.score end
        end
        local n = #event_lines
        event_lines[n + 1], event_lines[n + 2], event_lines[n + 3] = size, id, line or class.line
        event_count = event_count + 1
        if event_count == K.ROW then M.end_row() end
        M.tally(class.lane, class.priority, class.state, 1)
        class.accepted = class.accepted + 1
        if class.flies ~= 0 then
          joined[i] = M.job_of(seq)
          joined[i].verdict = M.join(joined[i])
        end
      end
    end
    if verdict then
      is_plain = false
      answers[i] = verdict
      if other then others[#others + 1] = other end
    else
      answers[i] = false
      if joined[i] then is_plain = false end
      if victim then
        is_plain, evicted[i] = false, true
        others[#others + 1] = victim.id
      end
    end
  end
  for i = 1, #batch.classes do
    local class = batch.classes[i]
    if class.accepted > 0 then
      call('HINCRBY', P .. 'total', text(class.lane * 16 + class.priority), class.accepted)
    end
  end
  if last ~= before then call('HSET', META, 'seq', text(last)) end
  M.flush()
  local verdicts = is_plain and string.char(class_of_job[1].state) or M.verdicts(answers, class_of_job, before, evicted, joined)
  return { text(before + 1), verdicts, others }
end

function M.verdicts(answers, class_of_job, last, evicted, joined)
  for i = 1, #answers do
    if not answers[i] then
      last = last + 1
      local job = joined[i] or class_of_job[i]
      answers[i] = pack('<BBBd', job.verdict or NEW, evicted[i] and EVICTED or 0, job.state, last)
    end
  end
  return table.concat(answers)
end
