-- Jobs that go to another store: all that is kept of them, and the keys they answer for, each with its digest.
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
    local _, at = unpack_from('<Hc0', packed)
    found[#found + 1], found[#found + 2] = keys[i], packed:sub(at)
  end
  return found
end

local answers = {}
for i = 1, #names do
  local seq = ids[names[i]]
  answers[i] = seq and { M.whole(seq), keys_of(M.job_of(seq)) } or false
end
return { stamp, answers }
