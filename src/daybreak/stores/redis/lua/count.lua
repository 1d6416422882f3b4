-- Counts the jobs of a set by lane, priority and state: a bounded number of them, from a seq on.
--
-- states, reason, priority: as in scan.lua
local name, after, limit = arg(), arg(), number()
local states, reason, priority = arg(), number(), number()
local seqs = call('ZRANGEBYSCORE', P .. name, after == '' and '-inf' or '(' .. after, '+inf', 'LIMIT', 0, limit)
local counts = {}
for from = 1, #seqs, K.CHUNK do
  local found = call('HMGET', P .. 'at', unpack(seqs, from, math.min(from + K.CHUNK - 1, #seqs)))
  for i = 1, #found do
    if found[i] then
      local state, why, _, _, _, _, level, _, a, b, c, d = found[i]:byte(1, 12)
      if (states == '' or states:find(text(state), 1, true)) and (reason < 0 or reason == why)
        and (priority < 0 or priority == level) then
        local cell = ((a + b * 256 + c * 65536 + d * 16777216) * 16 + level) * 8 + state
        counts[cell] = (counts[cell] or 0) + 1
      end
    end
  end
end
local cells = {}
for cell, n in pairs(counts) do
  cells[#cells + 1] = text(cell)
  cells[#cells + 1] = text(n)
end
-- How many were examined, the last of them, and the counts.
return { stamp, #seqs, seqs[#seqs] or '', cells }
