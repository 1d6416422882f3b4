-- Rows of the feed from a position on, until they contain enough events.
local from, limit = arg(), number()
local first = tonumber(call('HGET', META, 'first') or 1)
local last = tonumber(call('HGET', META, 'pos') or 0)
local rows, n = {}, 0
local at = from == '' and first or tonumber(from)
if at >= first then
  while at <= last and n < limit do
    local row = call('HGET', P .. 'feed', text(at))
    local _, events = unpack_from('<dI4', row)
    rows[#rows + 1] = row
    n = n + events
    at = at + 1
  end
end
return { stamp, text(first), text(last), rows }
