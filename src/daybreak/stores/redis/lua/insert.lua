-- Insert: jobs in bulk, each answering for itself. What jobs of one kind have in common is said and worked out once.

local CLASS = '<BBBddddd'
local NEW, DUPLICATE, CONFLICT, FULL = 0, 1, 2, 3
local BY_ID, BY_KEY, BY_UNIQUE = 1, 2, 3
local REPLACE, RAISE, REFUSE = 2, 3, 4

-- The kinds of jobs in this call, then the jobs, in runs of one kind: id, what was submitted, what it is tied to.
function M.read_specs()
  local classes, of, ids, bodies, ties, n = {}, {}, {}, {}, {}, 0
  for i = 1, number() do
    local class = { queue = arg(), task = arg(), tail = arg(), needs = arg() }
    class.priority, class.conflict, class.clock, class.due, class.expires, class.fence, class.keep, class.keep_failed =
      unpack_from(CLASS, arg())
    if class.needs == '' then class.needs = nil end
    classes[i] = class
  end
  for _ = 1, number() do
    local class = classes[number()]
    for _ = 1, number() do
      n = n + 1
      of[n], ids[n], bodies[n] = class, arg(), arg()
      if class.conflict ~= 0 then ties[n] = arg() end
    end
  end
  return { classes = classes, of = of, ids = ids, bodies = bodies, ties = ties }
end

-- The id of a job that stands for another is answered beside.
function M.answer(verdict, same, job, seq, state)
  return pack('<BBBd', verdict, same, state, seq), same > BY_ID and job or nil
end

function M.answer_for(verdict, same, job)
  return M.answer(verdict, same, job.id, tonumber(job.seq), job.state)
end

-- -- what a job is tied to --------------------------------------------------------------------------------------------

-- Its key, the digest of its content, its unique name, and the run and owner it belongs to.
function M.read_ties(packed)
  local flags, key, digest, unique, run_, owner = unpack_from('<BHc0Hc0Hc0Hc0Hc0', packed)
  return {
    key = M.has(flags, 1) and key or nil, digest = digest, unique = M.has(flags, 2) and unique or nil,
    run = M.has(flags, 4) and run_ or nil, owner = M.has(flags, 8) and owner or nil,
  }
end

function M.by_of(class) return (unpack_from('<Hc0', class.tail, 13)) end

function M.defer_to(holder, class, ties)
  if class.conflict == REFUSE then return M.answer_for(CONFLICT, BY_UNIQUE, holder) end
  if class.conflict == RAISE and class.priority < holder.priority and holder.state ~= RUNNING then
    M.rerank(holder, class.priority, M.by_of(class))
  end
  if ties.key then -- the holder answers for this key from now on, also when it has ended
    M.know_key(holder, ties.key, ties.digest)
    M.save(holder)
  end
  return M.answer_for(DUPLICATE, BY_UNIQUE, holder)
end

function M.known_key(ties)
  local there = M.hget('key', ties.key)
  if not there then return nil end
  local id, at = unpack_from('<Hc0', there)
  local verdict = there:sub(at) == ties.digest and DUPLICATE or CONFLICT
  local seq = M.hget('id', id)
  local job = seq and M.job_of(seq)
  if job then return M.answer_for(verdict, BY_KEY, job) end
  return M.answer(verdict, BY_KEY, id, 0, NO_STATE)
end

function M.accept_ties(seq, id, ties)
  local job = { seq = seq, id = id, marks = 0 }
  if ties.unique or ties.key then M.tie(job, ties.unique, {}) end
  if ties.unique then M.hset('unique', ties.unique, seq) end
  if ties.key then M.know_key(job, ties.key, ties.digest) end
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

-- -- accepting --------------------------------------------------------------------------------------------------------

-- What all new jobs of a class have in common.
function M.prepare(class, settings)
  class.lane = M.lane_of(class.queue, class.task)
  class.state, class.x, class.y, class.timed = QUEUED, M.score_of(settings, class.priority, now), NONE, 0
  if class.clock ~= 0 then
    local due = class.clock == K.WALL and class.due or now + class.due
    if due > now then class.state, class.timed, class.y = SCHEDULED, class.clock, due end
  end
  class.needed = class.needs and M.prepare_needs(class) or ''
  if class.state == QUEUED then
    class.place, class.score = M.moves('queued:' .. text(class.lane)), text(class.x)
  elseif class.state == SCHEDULED then
    class.place, class.score = M.moves(K.DUE[class.timed]), text(class.y)
  end
  class.all = M.moves('all:' .. text(class.lane))
  class.expiring = class.expires >= 0 and M.moves('expiring')
  class.expiry = class.expires >= 0 and text(now + class.expires)
  class.heads = {}
  class.prefix = pack('<ddd', now, class.keep, class.keep_failed)
  class.line = pack('<BBBBI4dd', K.submitted, class.state, 0, class.priority, 1, now,
    class.state == SCHEDULED and class.y or NONE) .. class.tail
  if not class.waits_for then M.wake_work(class.queue) end
end

function M.prepare_needs(class)
  class.since, class.on = NONE, 0
  if class.state == QUEUED then class.state = M.first_state(class) end
  if class.state == BLOCKED then class.waits_for = M.blocked_on(class) end
  return M.needed(class)
end

function M.head_of_class(class, marks)
  local head = pack(K.HEAD, class.state, 0, 0, marks, class.priority, class.timed, class.lane, 0, class.fence, 1,
    0, 0, class.x, class.y, NONE)
  class.heads[marks] = head
  return head
end

-- What stands in the way of a job; or the unfinished job that it replaces; or nothing.
function M.in_the_way(id, class, ties, settings, bounded)
  local holder
  if ties and ties.key then
    local verdict, other = M.known_key(ties)
    if verdict then return verdict, other end
  end
  if ties and ties.unique then
    local held = M.hget('unique', ties.unique)
    holder = held and M.job_of(held)
    if holder and not (class.conflict == REPLACE and holder.state ~= RUNNING) then
      return M.defer_to(holder, class, ties)
    end
  end
  if bounded and settings.capacity then
    local freed = holder and M.queue_of(holder.lane) == class.queue and 1 or 0
    if M.counted(class.queue, SCHEDULED, SUSPENDED) - freed >= settings.capacity then
      return M.answer(FULL, 0, id, 0, NO_STATE)
    end
  end
  if bounded and class.needs and M.is_crowded(M.needs_of(class.needs)) then
    return M.answer(FULL, 0, id, 0, NO_STATE)
  end
  return nil, nil, holder
end

-- Insert all; those that come with a settlement are part of it, and not refused for a full queue.
-- Answers the first new seq, what became of each, and the ids of those for which others stand. Where all are new and of
-- one kind, their state says it all.
function M.insert_all(batch, bounded, replaced)
  local ids, of, answers, others = batch.ids, batch.of, {}, {}
  if #ids == 0 then return { 0, '', others } end
  local seq_of_id, new_ids = M.fetch('id', ids), M.changes('id')
  local at, jobs, new_at, new_jobs = M.cache('at'), M.cache('job'), M.changes('at'), M.changes('job')
  local last = tonumber(call('HGET', META, 'seq') or 0)
  local before, format, is_plain = last, string.format, #batch.classes == 1
  for i = 1, #ids do
    local class, id, ties = of[i], ids[i], batch.ties[i]
    local verdict, other, holder
    if seq_of_id[id] then
      verdict, other = M.answer_for(DUPLICATE, BY_ID, M.job_of(seq_of_id[id]))
    else
      local settings = M.settings_of(class.queue)
      ties = ties and M.read_ties(ties)
      if ties or settings.capacity or class.needs then
        verdict, other, holder = M.in_the_way(id, class, ties, settings, bounded)
      end
      if not verdict then
        if holder then M.finish(holder, CANCELLED, M.by_of(class), K.cancelled, nil, 'replaced', replaced) end
        if not class.lane then M.prepare(class, settings) end
        last = last + 1
        local seq = format('%016.0f', last)
        local marks = ties and M.accept_ties(seq, id, ties) or 0
        if class.expiring then
          marks = marks + K.EXPIRY
          class.expiring[seq] = class.expiry
        end
        if class.needs then marks = marks + K.NEEDS end
        local size = M.size_of(id)
        at[seq] = (class.heads[marks] or M.head_of_class(class, marks)) .. size .. id .. '\0\0' .. class.needed
        jobs[seq] = class.prefix .. batch.bodies[i]
        seq_of_id[id] = seq
        new_at[#new_at + 1], new_jobs[#new_jobs + 1], new_ids[#new_ids + 1] = seq, seq, id
        class.all[seq] = seq
        if class.waits_for then
          M.wait_for(class.waits_for, class.lane, seq, class.x)
        else
          class.place[seq] = class.score
        end
        local n = #lines
        lines[n + 1], lines[n + 2], lines[n + 3] = size, id, class.line
        told = told + 1
        if told == K.ROW then M.end_row() end
        M.tally(class.lane, class.priority, class.state, 1)
      end
    end
    if verdict then
      is_plain = false
      answers[i] = verdict
      if other then others[#others + 1] = other end
    else
      answers[i] = false
    end
  end
  if last ~= before then call('HSET', META, 'seq', text(last)) end
  M.flush()
  return { text(before + 1), is_plain and string.char(of[1].state) or M.verdicts(answers, of, before), others }
end

function M.verdicts(answers, of, last)
  for i = 1, #answers do
    if not answers[i] then
      last = last + 1
      answers[i] = pack('<BBBd', NEW, 0, of[i].state, last)
    end
  end
  return table.concat(answers)
end
