-- file_commit: make a file of the pieces that have arrived. Row: tenant, id, how many pieces, size,
-- name, media type, sha256, ttl (ms), idempotency (32 hex or empty), fingerprint.
-- Writes file, part, files, fileend, filesize, filekey. Verdicts: ok created expires | replay id |
-- mismatch id | lost: pieces are gone.
return each(10, function(tenant, id, chunks, size, name, kind, sha, ttl, idempotency, fingerprint)
  local file, parts = B .. 'file:' .. tenant .. ':' .. id, B .. 'part:' .. tenant .. ':' .. id
  local known = redis.call('HMGET', file, 'at', 'end')
  if known[1] then return {'ok', known[1], known[2]} end
  local replay_key = B .. 'filekey:' .. tenant .. ':' .. idempotency
  if idempotency ~= '' then
    local first, its = string.match(redis.call('GET', replay_key) or '', '^(%S+) (%S+)$')
    if first and redis.call('EXISTS', B .. 'file:' .. tenant .. ':' .. first) == 1 then
      forget_file(tenant, id)
      return {its == fingerprint and 'replay' or 'mismatch', first}
    end
  end
  if redis.call('HLEN', parts) ~= tonumber(chunks) then return {'lost'} end
  local over = string.format('%d', now + ttl)
  redis.call('HSET', file, 'name', name, 'type', kind, 'size', size, 'sha256', sha,
    'at', string.format('%d', now), 'end', over, 'ttl', ttl, 'key', idempotency)
  redis.call('PEXPIREAT', file, over)
  redis.call('PEXPIREAT', parts, over)
  redis.call('ZADD', B .. 'files:' .. tenant, 0, id)
  redis.call('ZADD', B .. 'fileend:' .. tenant, over, id)
  redis.call('HSETNX', B .. 'filesize:' .. tenant, id, 0)
  if idempotency ~= '' then redis.call('SET', replay_key, id .. ' ' .. fingerprint, 'PXAT', over) end
  return {'ok', string.format('%d', now), over}
end)
