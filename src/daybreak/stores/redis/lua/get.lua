-- Jobs by id: their seq, moving and immutable part, and the parts that few have.
local names = {}
for i = 1, number() do names[i] = arg() end
local ids, seqs = fetch('id', names), {}
for i = 1, #names do
  if ids[names[i]] then seqs[#seqs + 1] = ids[names[i]] end
end
fetch_jobs(seqs)
fetch('job', seqs)
local answers = {}
for i = 1, #names do answers[i] = ids[names[i]] and whole(ids[names[i]]) or false end
return { text(server), answers }
