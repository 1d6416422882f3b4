-- Jobs that move to another store: everything that is stored of them, and their keys, each with its digest.
parts.whole()
local names = {}
for i = 1, number() do names[i] = arg() end
local ids, seqs = M.fetch('id', names), {}
for i = 1, #names do
  if ids[names[i]] then seqs[#seqs + 1] = ids[names[i]] end
end
M.fetch('at', seqs)
M.fetch('job', seqs)

local function keys_of(job)
  local _, keys = M.ties_of(job)
  local found = {}
  for i = 1, #keys do
    local packed = M.hget('key', keys[i])
    local _, _, at = unpack_from('<Hc0d', packed)
    found[#found + 1], found[#found + 2] = keys[i], packed:sub(at)
  end
  return found
end

-- An unfinished job may have given up its unique name to another.
local function holds_name(job)
  local unique = M.ties_of(job)
  return not unique or job.state >= COMPLETED or M.hget('unique', unique) == job.seq
end

local answers = {}
for i = 1, #names do
  local seq = ids[names[i]]
  local job = seq and M.job_of(seq)
  answers[i] = seq and { M.whole(seq), keys_of(job), holds_name(job) and 1 or 0 } or false
end
return { stamp, answers }
