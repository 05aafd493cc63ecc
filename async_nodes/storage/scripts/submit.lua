-- submit: accept tasks. Row: id, tenant, list, private, tail, inputs_at, inputs_len, delay,
-- deadline, timeout, ttl, max_dispatches, idempotency (32 hex or blank), fingerprint.
-- `tail` is the document from "node" to the comma before "attempts"; inputs_at counts from its
-- start. Writes t, k, x, q, due and the list. Verdicts: ok version created | replay id |
-- mismatch id.
return each(14, function(id, tenant, list, private, tail, inputs_at, inputs_len, delay, deadline,
    timeout, ttl, max_dispatches, idempotency, fingerprint)
  local known = read(id)
  if known then return {'ok', known.version, known.created_at} end
  local replay_key = B .. 'k:' .. trim(tenant) .. ':' .. idempotency
  if trim(idempotency) ~= '' then
    local earlier = redis.call('GET', replay_key)
    if earlier then
      local first, print_of_first = string.match(earlier, '^(%S+) (%S+)$')
      if first and redis.call('EXISTS', key_of(first)) == 1 then
        return {print_of_first == fingerprint and 'replay' or 'mismatch', first}
      end
    end
  end
  delay, deadline = tonumber(delay), tonumber(deadline)
  local json_at = SIZE + #private
  local attempts_at = json_at + HEAD + #tail + #'"attempts":['
  local open_end = '],"progress":null,"error":null,"usage":null,"output":null}'
  local r = {
    id = id, schema = SCHEMA, state = S_PENDING, reason = delay > 0 and R_DELAYED or R_NONE,
    list = tonumber(list), cancel = 0, queued = 0, stream = 0, dirty = 0, version = 1, seq = 0,
    attempt = 0, spent = 0, losses = 0, deaths = 0, redispatched = 0,
    max_dispatches = tonumber(max_dispatches), dispatch = 0, queued_version = 0,
    started_version = 0, timeout = tonumber(timeout), created_at = now, queued_at = 0,
    started_at = 0, first_started_at = 0, finished_at = 0,
    next_attempt_at = delay > 0 and now + delay or 0, deadline = deadline, expires_at = 0,
    ttl = tonumber(ttl), output_bytes = 0, stream_bytes = 0, chunks = 0, trimmed_version = 0, trimmed_seq = 0,
    json_at = json_at, inputs_at = json_at + HEAD + tonumber(inputs_at),
    inputs_len = tonumber(inputs_len), attempts_end = attempts_at, size = attempts_at + #open_end,
    fence = string.rep(' ', 16), worker = string.rep(' ', 40), idempotency = idempotency,
    tenant = tenant,
  }
  if delay > 0 then
    redis.call('ZADD', B .. 'due', r.next_attempt_at, 'w:' .. id)
  else
    dispatch(r)
  end
  redis.call('SET', key_of(id), packed(r) .. private .. head(r) .. tail .. '"attempts":[' .. open_end)
  redis.call('ZADD', B .. 'x:' .. trim(tenant), now, id)
  if trim(idempotency) ~= '' then redis.call('SET', replay_key, id .. ' ' .. fingerprint) end
  if deadline > 0 then redis.call('ZADD', B .. 'due', deadline, 'd:' .. id) end
  emit_state(r)
  return {'ok', 1, now}
end)
