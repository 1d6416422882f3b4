-- Batch calls: which jobs a claim leases together with the head, and how such a call begins. How it ends: see job.lua.
local SEARCHED, MAX_PASSED_OVER, PIECE = 100, 1000, 64 -- as in kernel/claim.py
local BUCKETS = { [0] = 0, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5 }

-- How the claim puts the jobs of a lane together; nil if not at all.
function M.batching_of(claim, lane)
  local packed = M.hget('lane', text(lane))
  local _, at = unpack_from('<Hc0', packed)
  return claim.batches[packed:sub(at)]
end

-- The resources of packed needs, without what else is packed with them.
local function resources_of(packed)
  if not packed then return '' end
  local _, _, _, at = unpack_from('<BdHc0', packed)
  return packed:sub(at)
end

local function is_suspect(job) return job.lost > 0 or job.timeouts > 0 end

local function fits(mate, head)
  return math.abs(BUCKETS[mate.priority] - BUCKETS[head.priority]) <= 1 and not is_suspect(mate)
    and resources_of(mate.needs) == resources_of(head.needs)
    and not (M.has(mate.marks, K.EXPIRY) and M.is_overdue(mate.seq))
end

local function search(name, head, wanted, limit, spoken_for)
  local mates, seen, from, piece = {}, 0, 0, wanted + 1 -- the head is among them; mostly the first ones fit
  while #mates < wanted and seen < limit do
    local found = call('ZRANGE', P .. name, from, from + piece - 1)
    M.fetch('at', found)
    for i = 1, #found do
      local seq = found[i]
      if #mates < wanted and seen < limit and seq ~= head.seq and not spoken_for[seq] then
        seen = seen + 1
        local mate = M.job_of(seq)
        if fits(mate, head) then mates[#mates + 1] = mate end
      end
    end
    if #found < piece then break end
    from, piece = from + piece, PIECE
  end
  return mates
end

-- The jobs that the batch call of this one takes along, in rank order; nil if the call is not full, and waits for more.
function M.find_mates(claim, room, head, batching)
  local name = M.company_of(head)
  if claim.lingering[name] then return nil end
  if is_suspect(head) or claim.job then return {} end
  local size = math.min(batching.size, room)
  local mates = search(name, head, size - 1, batching.size + SEARCHED, claim.spoken_for)
  if batching.linger >= 0 and 1 + #mates < size then
    local ripe_at = M.arrived(head) + batching.linger
    if ripe_at > now then
      claim.lingering[name] = true
      claim.ripe_at = math.min(claim.ripe_at or ripe_at, ripe_at)
      return nil
    end
  end
  return mates
end

-- Passes a job over; returns whether the claim may pass over no more.
function M.pass_over(claim, seq)
  claim.out[seq], claim.passed_over = true, claim.passed_over + 1
  return claim.passed_over == MAX_PASSED_OVER
end

-- Leases the jobs of a batch call, and adds them to the answer. What they need was taken for the head.
function M.start_call(claim, head, mates, holder, seqs, heads)
  local flags, by = claim.flags + K.GROUPED, pack('<Hc0I4c0', #claim.worker, claim.worker, 0, '')
  M.begin_lease(head, flags, claim.lease_for, by, holder)
  M.hset('group', head.seq, pack('<c16I4', head.seq, 1 + #mates))
  for i = 1, #mates do
    local mate = mates[i]
    if mate.needs then M.release_offers(mate) end
    M.begin_lease(mate, flags, claim.lease_for, by, holder)
    M.hset('group', mate.seq, pack('<c16I4', head.seq, 0))
    claim.out[mate.seq], claim.spoken_for[mate.seq] = true, true
  end
  M.hset('left', head.seq, text(1 + #mates))
  if #mates > 0 then
    M.change(head, K.batch_started, nil, claim.worker, cmsgpack.pack({ note = text(1 + #mates) .. ' jobs' }))
    M.save(head)
  end
  local at, n = M.cache('at'), #seqs
  seqs[n + 1], heads[n + 1] = head.seq, at[head.seq]:sub(1, 60)
  for i = 1, #mates do
    local seq = mates[i].seq
    seqs[n + 1 + i], heads[n + 1 + i] = seq, at[seq]:sub(1, 60)
  end
end
