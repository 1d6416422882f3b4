-- What every script has first: the clock, the arguments, codes, and the state of the running script.
--
-- KEYS[1]  the prefix of the namespace; every key is derived from it and so lives in its slot
-- ARGV[1]  the time, microseconds since 1970. Empty: use the server's clock. '~' and a time: use the server's clock, but if
--          it differs much from that time, do nothing and reply with the time alone: the clock may have jumped
-- ARGV[2]  added to the server's clock; 0 outside of tests
-- ARGV[3]  ... the script's own arguments
--
-- Numbers beyond 2^31 are doubles, exact below 2^53. Never convert them with tostring, which rounds.
-- Functions are in one table, M, and are defined in parts, each only when it is needed: defining them takes time.
local call, P = redis.call, KEYS[1]
local pack, unpack_from, band, text = struct.pack, struct.unpack, bit.band, nil
local META = P .. 'meta'
local M = {}

-- `wall` is for run_at and for times that people see; `now` is steady time and decides everything else. They differ by
-- the offset, which is 0 until the server's clock jumps: see correct.lua.
local clock, found = call('TIME'), call('HMGET', META, 'clock', 'needs', 'version')
local offset = tonumber(found[1] or 0)
-- Every script checks this: a newer program may have upgraded the namespace while this program runs.
if tonumber(found[2] or 0) > VERSION then
  return redis.error_reply('TOONEW (schema ' .. found[3] .. ', this one knows ' .. VERSION .. ')')
end
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

-- Format as an integer, which is faster. A 32-bit server can do that only below 2^31.
local format = string.format
local is_wide = format('%d', 4503599627370496) == '4503599627370496'
local WHOLE = is_wide and '%d' or '%.0f'
function text(value) return format(WHOLE, value) end
local stamp = offset == 0 and text(shown) or text(shown) .. ':' .. text(offset) -- the start of every reply
if is_own and ARGV[1] ~= '' and math.abs(server - tonumber(ARGV[1]:sub(2))) > 5000000 then return { stamp } end

-- -- codes, as in codes.py --------------------------------------------------------------------------------------------

local SCHEDULED, BLOCKED, QUEUED, RUNNING, SUSPENDED, COMPLETED, FAILED, CANCELLED = 0, 1, 2, 3, 4, 5, 6, 7
local NO_STATE, NO_PRIORITY, NO_ATTEMPT, NONE = 255, 255, 4294967295, -1
local K = {
  submitted = 0, due = 1, started = 2, progress = 3, retrying = 4, released = 5, completed = 6, failed = 7,
  cancelled = 8, suspended = 9, resumed = 10, reprioritised = 11, expired = 12, shed = 13, lease_expired = 14,
  cancel_requested = 15, suspend_requested = 16, retried = 17, removed = 18, folded = 19, moved = 20,
  blocked = 21, unblocked = 22, breaker_opened = 23, breaker_closed = 24, breaker_probing = 25, queue_full = 26, queue_empty = 27,
  saga_stuck = 28, detached = 29, batch_started = 30, batch_completed = 31,
  -- flags of a lease
  CANCELLING = 1, SUSPENDING = 2, REAPED = 4, ALONE = 8, CALLED = 16, AHEAD = 32, CHOSEN = 64, DETACHED = 256, GROUPED = 512,
  -- what is stored in separate hashes of a job
  CHECKPOINT = 1, FAILURE = 2, NOTE = 4, PROGRESS = 8, RESULT = 16, TIES = 32, EXPIRY = 64, NEEDS = 128, FLIGHT = 256,
  FOLLOWS = 512, POINTS = 1024, BATCH = 2048,
  FLIGHT_OF = 'flight ', -- what a job waits for that follows another, as in core/flights.py
  -- the clock of a delay
  STEADY = 1, WALL = 2,
  REASON_ERROR = 1, REASON_EXPIRED = 4, REASON_SHED = 5,
  HELD = '<Hc0Hc0Hc0', -- the holder of a lease: worker, call, who requested a cancel
  NEEDED = '<dHI4c0', -- blocked since, index of the need it is blocked on, its packed needs
  RETRIES = 32768, -- added to that index: blocked because the retries of that need are limited
  DUE = { 'due:steady', 'due:wall' },
  -- Scores: with aging they are times, by priority they are above all times. Both are exact and print fast below 2^52.
  FIFO = 4503599627370464,
  CHUNK = 500, ROW = 500,
  SEQ = is_wide and '%016d' or '%016.0f', NOBODY = '0000000000000000', -- the format of a seq, and the seq of no job
  OFFERED_AT_ONCE = 100, ONE_RETRY_EACH = 1000000, RETRIES_OF = 'retries of ', -- as in core/resource_gauge.py
}

local known, dirty, moved = {}, {}, {} -- cached hashes; their changed fields; changes of sets
local queues, settings_known = {}, {} -- the queue of a lane, and the settings of queues
local tallies, stored = {}, {} -- changes of the counts, and counts that were read
local totals = {} -- additions to the totals
local topics, finals = {}, {} -- topics to wake, and the ids of jobs that ended or were granted
local event_lines, event_count = {}, 0 -- the events of this script for the feed, and their number
local gauges, freed = {}, {} -- the loaded resources, and those to be offered before the script ends
local looks = {} -- `first`: when the next resource must be offered again; outdated if `is_stale`

local parts = {} -- change_set.lua and the other parts of the script
