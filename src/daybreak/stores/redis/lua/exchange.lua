-- The one transaction by which workers live: settle, what settlements bring, insert, put, claim; what is there of it.
local flags, replaced = number(), arg()
local SETTLES, FOLLOWS, INSERTS, PUTS, CLAIMS = 1, 2, 4, 8, 16
local settlements, following, batch, puts, claim = nil, {}, nil, nil, nil
local function is_there(part) return band(flags, part) ~= 0 end

if is_there(SETTLES) then
  parts.settle()
  settlements = M.read_settlements()
end
if is_there(INSERTS) or is_there(FOLLOWS) then parts.insert() end
if is_there(PUTS) or is_there(FOLLOWS) then parts.put() end
if is_there(FOLLOWS) then
  for i = 1, number() do following[i] = { which = number(), batch = M.read_specs(), puts = M.read_puts() } end
end
if is_there(INSERTS) then batch = M.read_specs() end
if is_there(PUTS) then puts = M.read_puts() end
if is_there(CLAIMS) then
  parts.time()
  parts.claim()
  claim = M.read_claim()
end

M.begin()
local settled, accepted = '', nil
if settlements then settled, accepted = M.settle_all(settlements) end
for i = 1, #following do
  if accepted[following[i].which] then M.insert_all(following[i].batch, false, replaced) end
end
for i = 1, #following do
  if accepted[following[i].which] then M.put_all(following[i].puts) end
end
local inserted = batch and M.insert_all(batch, true, replaced) or false
local revisions = puts and M.put_all(puts) or {}
M.flush()
if next(freed) then M.offer_freed() end
local claimed = claim and M.claim_all(claim) or false
M.finish_script()
return { stamp, settled, inserted, revisions, claimed }
