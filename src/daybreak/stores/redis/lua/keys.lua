-- The jobs of idempotency keys: id, digest of the content, and whether the job is gone.
local names, ids, answers = {}, {}, {}
for i = 1, number() do names[i] = arg() end
local found = M.fetch('key', names)
for i = 1, #names do
  if found[names[i]] then ids[#ids + 1] = unpack_from('<Hc0', found[names[i]]) end
end
local seqs = M.fetch('id', ids)
for i = 1, #names do
  answers[i] = false
  if found[names[i]] then
    local id, _, at = unpack_from('<Hc0d', found[names[i]])
    local digest = found[names[i]]:sub(at)
    if seqs[id] then
      answers[i] = { id, digest, 0 }
    elseif M.is_spent(names[i]) then
      answers[i] = { id, digest, 1 }
    end
  end
end
return { stamp, answers }
