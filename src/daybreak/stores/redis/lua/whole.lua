-- Everything that is stored of a job, as rows.py unpacks it.
function M.whole(seq)
  local record = M.hget('at', seq)
  local flags_low, flags_high, low, high = record:byte(3, 6)
  local flags, marks = flags_low + 256 * flags_high, low + 256 * high
  local expires = M.has(marks, K.EXPIRY) and call('ZSCORE', P .. 'expiring', seq) or false
  local result, source = M.has(marks, K.RESULT) and M.hget('result', seq) or false, false
  if M.has(marks, K.POINTS) then -- see flight.lua
    local number, at = unpack_from('<c16', M.hget('points', seq))
    source = M.hget('points', seq):sub(at)
    if number ~= K.NOBODY then result = M.hget('computed', number) end
  end
  return {
    seq, record, M.hget('job', seq), M.has(marks, K.CHECKPOINT) and M.hget('checkpoint', seq) or false,
    M.has(marks, K.FAILURE) and M.hget('failure', seq) or false, M.has(marks, K.NOTE) and M.hget('note', seq) or false,
    M.has(marks, K.PROGRESS) and M.hget('progress', seq) or false, result,
    expires, source, M.has(flags, K.GROUPED) and unpack_from('<c16', M.hget('group', seq)) or false,
  }
end
