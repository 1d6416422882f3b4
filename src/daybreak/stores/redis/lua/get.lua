-- Jobs by id: seq, changing and immutable part, and the parts that few jobs have.
parts.whole()
local names = {}
for i = 1, number() do names[i] = arg() end
local ids, seqs = M.fetch('id', names), {}
for i = 1, #names do
  if ids[names[i]] then seqs[#seqs + 1] = ids[names[i]] end
end
M.fetch('at', seqs)
M.fetch('job', seqs)
local answers = {}
for i = 1, #names do answers[i] = ids[names[i]] and M.whole(ids[names[i]]) or false end
return { stamp, answers }
