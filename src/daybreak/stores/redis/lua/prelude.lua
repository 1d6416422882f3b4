-- What every script begins with: the clock, its arguments, codes, and what it remembers while it runs.
--
-- KEYS[1]  the prefix of the namespace; every key is derived from it and so lives in its slot
-- ARGV[1]  the time, microseconds since 1970; empty is the server's own clock; '~' and a time is that clock, too, and if it
--          is far from that time the script does nothing and replies with the time alone: the clock may have jumped
-- ARGV[2]  what is added to the server's clock; 0 outside of tests
-- ARGV[3]  ... are the script's own
--
-- Numbers beyond 2^31 are doubles, exact below 2^53, and are never turned into text by tostring, which rounds them.
-- Functions stand in one table, M, and are defined in parts, each when it is needed: making them takes time.
local call, P = redis.call, KEYS[1]
local pack, unpack_from, band, text = struct.pack, struct.unpack, bit.band, nil
local META = P .. 'meta'
local M = {}

-- `wall` is for run_at and for what people are shown; `now` is steady, and decides everything else. They differ by the
-- offset, which is 0 until the server's clock jumps: see correct.lua.
local clock, offset = call('TIME'), tonumber(call('HGET', META, 'clock') or 0)
local shown = clock[1] * 1000000 + clock[2] + tonumber(ARGV[2])
local server = shown - offset
local is_own = ARGV[1] == '' or ARGV[1]:byte() == 126
local now, wall = server, shown
if not is_own then
  now = tonumber(ARGV[1])
  wall = now
end

local position = 2
local function arg()
  position = position + 1
  return ARGV[position]
end
local function number()
  position = position + 1
  return tonumber(ARGV[position])
end

-- As an integer, which is faster; a server of 32 bits can do that only below 2^31.
local format = string.format
local is_wide = format('%d', 4503599627370496) == '4503599627370496'
local WHOLE = is_wide and '%d' or '%.0f'
function text(value) return format(WHOLE, value) end
local stamp = offset == 0 and text(shown) or text(shown) .. ':' .. text(offset) -- every reply begins with it
if is_own and ARGV[1] ~= '' and math.abs(server - tonumber(ARGV[1]:sub(2))) > 5000000 then return { stamp } end

-- -- codes, as in codes.py --------------------------------------------------------------------------------------------

local SCHEDULED, BLOCKED, QUEUED, RUNNING, SUSPENDED, COMPLETED, FAILED, CANCELLED = 0, 1, 2, 3, 4, 5, 6, 7
local NO_STATE, NO_PRIORITY, NO_ATTEMPT, NONE = 255, 255, 4294967295, -1
local K = {
  submitted = 0, due = 1, started = 2, progress = 3, retrying = 4, released = 5, completed = 6, failed = 7,
  cancelled = 8, suspended = 9, resumed = 10, reprioritised = 11, expired = 12, shed = 13, lease_expired = 14,
  cancel_requested = 15, suspend_requested = 16, retried = 17, removed = 18, folded = 19, moved = 20,
  blocked = 21, unblocked = 22, breaker_opened = 23, breaker_closed = 24,
  -- flags of a lease
  CANCELLING = 1, SUSPENDING = 2, REAPED = 4, ALONE = 8, CALLED = 16, AHEAD = 32,
  -- what is kept beside a job
  CHECKPOINT = 1, FAILURE = 2, NOTE = 4, PROGRESS = 8, RESULT = 16, TIES = 32, EXPIRY = 64, NEEDS = 128,
  -- how a delay is counted
  STEADY = 1, WALL = 2,
  REASON_ERROR = 1, REASON_EXPIRED = 4, REASON_SHED = 5,
  HEAD = '<BBBBBBI4I4dI4I4I4ddd', -- 58 bytes: state, reason, flags, marks, priority, clock, lane, attempt, fence, n, ...
  HELD = '<Hc0Hc0Hc0', -- the holder of a lease: worker, call, who cancels
  NEEDED = '<dHI4c0', -- since when a job was blocked, on which of its needs, and its needs as the client packed them
  RETRIES = 32768, -- added to that number: blocked on the retries of what it needs
  DUE = { 'due:steady', 'due:wall' },
  -- Scores: by age they are instants, by priority they lie above all instants; both print fast and exact below 2^52.
  FIFO = 4503599627370464,
  CHUNK = 500, ROW = 500,
  SEQ = is_wide and '%016d' or '%016.0f', NOBODY = '0000000000000000', -- how a seq is spelt, and that of no job
  OFFERED_AT_ONCE = 100, ONE_RETRY_EACH = 1000000, RETRIES_OF = 'retries of ', -- as in sharing.py
}

local known, dirty, moved = {}, {}, {} -- hashes as they are; which fields changed; how sets changed
local queues, settings_known = {}, {} -- the queue of a lane, and the settings of queues
local tallies, stored = {}, {} -- by how much cells changed, and what was counted before
local totals = {} -- what is added to the totals
local topics, finals = {}, {} -- whom to wake, and the names of jobs that ended or were granted
local lines, told = {}, 0 -- the pieces of the events of this script, and how many events they are
local gauges, freed = {}, {} -- the resources of this script, and which of them are to be offered before it ends
local looks = {} -- `first` is when those who wait for a resource are looked at; if `is_stale`, it may be another time

local parts = {} -- change_set.lua and whatever else a script needs
