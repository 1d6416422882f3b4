-- The transitions of most jobs. Each takes what it needs of a job's head, and returns the new head and the event. The fast
-- paths and the general path have them from here; they differ in how they read and write. Numbers are as in prelude.lua,
-- which comes later.
local pack, unpack_from, band = struct.pack, struct.unpack, bit.band
local HEAD = '<BBI2I2BBI4I4dI4I4I4ddd' -- 60 bytes: state, reason, flags, marks, priority, clock, lane, attempt, fence, n, ...

-- A job is accepted. `y` is when it falls due, or -1.
local function accepted(state, marks, priority, clock, lane, x, y, wall, tail)
  return pack(HEAD, state, 0, 0, marks, priority, clock, lane, 0, 0, 1, 0, 0, x, y, -1),
    pack('<BBBBI4dd', 0, state, 0, priority, 1, wall, y) .. tail
end

-- A lease starts: note, progress and expiry end with the wait. `by` is the end of the event.
local function started(flags, marks, priority, lane, attempt, fence, n, lost, timeouts, now, wall, lease_for, by)
  attempt, fence, n = attempt + 1, fence + 1, n + 1
  return pack(HEAD, 3, 0, flags, marks - band(marks, 76), priority, 0, lane, attempt, fence, n, lost, timeouts,
    now + lease_for, lease_for, wall), pack('<BBBBI4dddI4', 2, 3, 0, 255, n, wall, -1, fence, attempt) .. by
end

-- A job completes as its fate says, which has the start and the end of the event. It follows no other job any more.
local function completed(fate, marks, priority, lane, fence, n, started_at, now, wall)
  if fate.parts % 2 == 1 and band(marks, 16) == 0 then marks = marks + 16 end -- it has a result
  n = n + 1
  return pack(HEAD, 5, fate.reason, 0, marks - band(marks, 512), priority, 0, lane, fate.attempt, fence, n, fate.lost, fate.timeouts, wall,
    fate.keep < 0 and -1 or now + fate.keep, started_at), fate.event .. pack('<I4dd', n, wall, -1) .. fate.tail
end
