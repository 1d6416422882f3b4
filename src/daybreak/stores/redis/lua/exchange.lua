-- The transaction that workers use most: settlements, the inserts and puts that come with them, inserts, puts, a claim.
-- Each part is optional.
local flags = number()
local SETTLES, FOLLOWUPS, INSERTS, PUTS, CLAIMS, PUT_INSERTS = 1, 2, 4, 8, 16, 32
local settlements, followups, batch, puts, claim = nil, {}, nil, nil, nil
local function has_part(part) return band(flags, part) ~= 0 end

if has_part(SETTLES) then
  parts.settle()
  settlements = M.read_settlements()
end
if has_part(INSERTS) or has_part(FOLLOWUPS) or has_part(PUT_INSERTS) then parts.insert() end
if has_part(PUTS) or has_part(FOLLOWUPS) then parts.put() end
if has_part(FOLLOWUPS) then
  for i = 1, number() do followups[i] = { which = number(), batch = M.read_specs(), puts = M.read_puts() } end
end
if has_part(INSERTS) then batch = M.read_specs() end
if has_part(PUTS) then puts = M.read_puts() end
if has_part(CLAIMS) then
  parts.time()
  parts.claim()
  claim = M.read_claim()
end

M.begin()
local settled, accepted = '', nil
if settlements then settled, accepted = M.settle_all(settlements) end
for i = 1, #followups do
  if accepted[followups[i].which] then M.insert_all(followups[i].batch, false) end
end
for i = 1, #followups do
  if accepted[followups[i].which] then M.put_all(followups[i].puts) end
end
local inserted = batch and M.insert_all(batch, true) or false
local revisions = puts and M.put_all(puts) or {}
M.flush()
if next(freed) then M.offer_freed() end
local claimed = claim and M.claim_all(claim) or false
M.finish_script()
return { stamp, settled, inserted, revisions, claimed }
