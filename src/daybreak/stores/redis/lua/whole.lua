-- All that is kept of a job, as read.py takes it apart.
local function whole(seq)
  local record = hget('at', seq)
  local marks = record:byte(4)
  local expires = has(marks, EXPIRY) and call('ZSCORE', P .. 'expiring', seq) or false
  return {
    seq, record, hget('job', seq), has(marks, CHECKPOINT) and hget('checkpoint', seq) or false,
    has(marks, FAILURE) and hget('failure', seq) or false, has(marks, NOTE) and hget('note', seq) or false,
    has(marks, PROGRESS) and hget('progress', seq) or false, has(marks, RESULT) and hget('result', seq) or false,
    expires,
  }
end
