-- claim: turn a wake-up message into a fenced right to run. Row: id, dispatch, worker, fence.
-- Writes t, q, r:<worker>. Verdicts: run version attempt spent losses deaths queued started
-- first_started deadline timeout created tenant private inputs | stale state | expired | no_lease
-- | gone.
return each(4, function(id, dispatched, worker, fence)
  local r = read(id)
  if not r then return {'gone'} end
  local again = r.state == S_RUNNING and r.fence == fence
  if not again then
    if not NEXT[r.state].START or r.queued == 0 or r.dispatch ~= tonumber(dispatched) then
      return {'stale', STATE[r.state]}
    end
    -- A lease that has run out may still be renewed; one that was given up (0) may not be used.
    local lease = redis.call('ZSCORE', B .. 'workers', trim(worker))
    if not lease or tonumber(lease) == 0 then return {'no_lease'} end
    if r.deadline > 0 and now >= r.deadline then
      conclude(r, NEXT[r.state].TIMEOUT, R_DEADLINE, '', DEADLINE, 'null', 'null', 'null')
      return {'expired'}
    end
    undispatch(r)
    bump(r)
    r.state, r.reason, r.fence, r.worker = NEXT[r.state].START, R_NONE, fence, worker
    r.attempt, r.spent, r.redispatched = r.attempt + 1, r.spent + 1, 0
    r.chunks = 0
    r.started_at, r.started_version = now, r.version
    if r.first_started_at == 0 then r.first_started_at = now end
    if r.dirty == 1 then write_end(r, '', 'null', 'null', 'null', 'null') end
    save(r)
    redis.call('SADD', B .. 'r:' .. trim(worker), id)
    emit_state(r)
  end
  local private = redis.call('GETRANGE', key_of(id), SIZE, r.json_at - 1)
  local inputs = ''
  if r.inputs_len > 0 then
    inputs = redis.call('GETRANGE', key_of(id), r.inputs_at, r.inputs_at + r.inputs_len - 1)
  end
  return {'run', r.version, r.attempt, r.spent, r.losses, r.deaths, r.queued_at, r.started_at,
    r.first_started_at, r.deadline, r.timeout, r.created_at, trim(r.tenant), private, inputs}
end)
