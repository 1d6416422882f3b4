-- Take over jobs of another store. They keep state, attempts, result and history, and get a higher fence.
parts.insert()
local by, jobs = arg(), {}
for i = 1, number() do
  local job = { queue = arg(), task = arg(), id = arg(), body = arg(), ties = M.read_ties(arg()), needs = arg(),
    batch = arg() }
  job.history, job.since, job.on = arg(), NONE, 0
  if job.needs == '' then job.needs = nil end
  job.state, job.reason, job.priority, job.attempt, job.n, job.lost, job.timeouts, job.fence, job.created, job.due,
    job.expires, job.started, job.finished, job.keep, job.keep_failed = unpack_from('<BBBI4I4I4I4dddddddd', arg())
  job.checkpoint, job.failure, job.note, job.progress, job.result = arg(), arg(), arg(), arg(), arg()
  job.flies, job.source = arg(), arg()
  job.holds_name = number() == 1
  job.keys = {} -- each with its digest
  for k = 1, number() do job.keys[k] = { arg(), arg() } end
  jobs[i] = job
end

local DUPLICATE, CONFLICT, NEW = 1, 2, 0
local BY_ID, BY_KEY, BY_UNIQUE = 1, 2, 3

local function find_conflict(job, is_open)
  local known_seq, ties = M.hget('id', job.id), job.ties
  if known_seq then return M.answer_for(DUPLICATE, BY_ID, M.job_of(known_seq)) end
  for i = 1, #job.keys do
    local existing = M.hget('key', job.keys[i][1])
    local other = existing and unpack_from('<Hc0', existing)
    if existing and other ~= job.id then
      local seq = M.hget('id', other)
      if seq then return M.answer_for(CONFLICT, BY_KEY, M.job_of(seq)) end
      if M.is_spent(job.keys[i][1]) then return M.answer(CONFLICT, BY_KEY, other, 0, NO_STATE) end
    end
  end
  local held = ties.unique and is_open and job.holds_name and M.hget('unique', ties.unique)
  if held then return M.answer_for(CONFLICT, BY_UNIQUE, M.job_of(held)) end
  return nil
end

-- Sets x and y, see job.lua.
local function set_rank(job, is_open)
  job.clock, job.y, job.flags, job.holder = 0, NONE, 0, ''
  if is_open then
    job.x = M.score_of(M.settings_of(job.queue), job.priority, now - math.max(0, wall - job.created))
    -- A suspended job waits for its time again when it is resumed.
    if (job.state == SCHEDULED or job.state == SUSPENDED) and job.due ~= NONE then
      job.clock, job.y = K.WALL, job.due
    end
    return
  end
  local keep = job.state == FAILED and job.keep_failed or job.keep
  job.x = job.finished
  if keep >= 0 then job.y = now + math.max(0, keep - math.max(0, wall - job.finished)) end
  finals[#finals + 1] = M.size_of(job.id) .. job.id
end

local function keep_parts(job)
  M.mark(job, K.CHECKPOINT, 'checkpoint', job.checkpoint)
  M.mark(job, K.FAILURE, 'failure', job.failure)
  M.mark(job, K.NOTE, 'note', job.note)
  M.mark(job, K.PROGRESS, 'progress', job.progress)
  M.mark(job, K.RESULT, 'result', job.result)
  M.mark(job, K.FLIGHT, 'flies', job.flies)
  M.mark(job, K.POINTS, 'points', job.source ~= '' and K.NOBODY .. job.source)
end

-- A finished job keeps its unique name but does not hold it.
local function tie(job, ties, is_open)
  if ties.unique or #job.keys > 0 then M.tie(job, ties.unique, {}, ties.gives_up, ties.code) end
  if ties.unique and is_open and job.holds_name then M.hset('unique', ties.unique, job.seq) end
  for i = 1, #job.keys do
    M.assign_key(job, job.keys[i][1], job.keys[i][2], now == wall and NONE or now - math.max(0, wall - job.created))
    M.zset('dropped', job.keys[i][1], false) -- the key may exist here if the job came from this store
  end
  M.belong(job.seq, ties)
end

local function accept(job, is_open, last)
  local seq = string.format(K.SEQ, last)
  job.seq, job.lane, job.fence = seq, M.lane_of(job.queue, job.task), job.fence + 1
  job.marks = job.needs and K.NEEDS or 0
  M.hset('id', job.id, seq)
  M.hset('job', seq, pack('<ddd', job.created, job.keep, job.keep_failed) .. job.body)
  M.moves('all:' .. text(job.lane))[seq] = seq
  tie(job, job.ties, is_open)
  keep_parts(job)
  if job.batch ~= '' then
    job.marks = M.with(job.marks, K.BATCH)
    M.hset('batch', seq, job.batch:sub(2))
  end
  if is_open and job.expires >= 0 then
    job.marks = M.with(job.marks, K.EXPIRY)
    M.zset('expiring', seq, now + math.max(0, job.expires - wall))
  end
  set_rank(job, is_open)
  if job.state == BLOCKED then job.state = M.ready_state(job) end -- this store decides itself what the job waits for
  M.change(job, K.moved, job.state, by, nil, job.reason, M.due_at(job), job.fence)
  M.enter(job)
  M.save(job)
  if M.has(job.marks, K.FLIGHT) then M.join(job) end
end

M.begin()
local last = tonumber(call('HGET', META, 'seq') or 0)
local answers, others = {}, {}
for i = 1, #jobs do
  local job = jobs[i]
  local is_open = job.state < COMPLETED
  local verdict, other = find_conflict(job, is_open)
  if not verdict then
    last = last + 1
    accept(job, is_open, last)
    verdict = M.answer(NEW, 0, job.id, last, job.state)
  end
  answers[i] = verdict
  if other then others[#others + 1] = other end
end
call('HSET', META, 'seq', text(last))
if next(freed) then M.offer_freed() end
M.finish_script()
return { stamp, { '0', table.concat(answers), others } }
