-- The one transaction by which workers live: settle, what settlements bring, insert, put, claim.
local settlements, settled_seqs = read_settlements()
local following = {}
for i = 1, number() do following[i] = { which = number(), batch = read_specs(), puts = read_puts() } end
local batch, puts, claim = read_specs(), read_puts(), nil
local replaced = arg()
batch.replaced = replaced
if number() == 1 then claim = read_claim() end

begin()
local settled, accepted = settle_all(settlements, settled_seqs)
for i = 1, #following do
  if accepted[following[i].which] then
    following[i].batch.replaced = replaced
    insert_all(following[i].batch, false)
  end
end
for i = 1, #following do
  if accepted[following[i].which] then put_all(following[i].puts) end
end
local inserted, others = insert_all(batch, true)
local revisions = put_all(puts)
flush()
local claimed = claim and claim_all(claim) or false
finish_script()
return { text(server), settled, inserted, others, revisions, claimed }
