-- The transitions of most jobs. Each gives a job its new head, and its event. The fast paths and the general path have
-- them from here; they differ in how they read and write. Numbers are as in prelude.lua, which comes later.
local pack, unpack_from, band = struct.pack, struct.unpack, bit.band
local HEAD = '<BBI2I2BBI4I4dI4I4I4ddd' -- 60 bytes: state, reason, flags, marks, priority, clock, lane, attempt, fence, n, ...

-- A lease starts. Jobs with equal heads get equal heads and events, which are computed once. `ends` are the marks of what
-- ends with the wait: note, progress and expiry. `by` is the packed end of the event: who, and nothing else.
local function started(head, flags, now, wall, lease_for, by)
  local _, _, _, marks, priority, _, lane, attempt, fence, n, lost, timeouts = unpack_from(HEAD, head)
  local ends = band(marks, 76)
  attempt, fence, n = attempt + 1, fence + 1, n + 1
  return {
    head = pack(HEAD, 3, 0, flags, marks - ends, priority, 0, lane, attempt, fence, n, lost, timeouts, now + lease_for,
      lease_for, wall),
    line = pack('<BBBBI4dddI4', 2, 3, 0, 255, n, wall, -1, fence, attempt) .. by,
    marks = marks, ends = ends, lane = lane, priority = priority, attempt = attempt, n = n, count = 0,
  }
end
