-- file_part: keep a piece of a file that arrives. Row: tenant, id, number, bytes, what all files of the
-- tenant may take, grace (ms) in which the next piece has to come. Writes part, filesize, fileend.
-- Verdicts: ok | full used | lost: earlier pieces are gone.
return each(6, function(tenant, id, number, bytes, limit, grace)
  tidy_files(tenant)
  local parts, sizes = B .. 'part:' .. tenant .. ':' .. id, B .. 'filesize:' .. tenant
  if redis.call('EXISTS', B .. 'file:' .. tenant .. ':' .. id) == 1 then return {'ok'} end
  if redis.call('HLEN', parts) < tonumber(number) then return {'lost'} end
  if redis.call('HEXISTS', parts, number) == 0 then
    local used = tonumber(redis.call('HGET', sizes, 'total') or '0')
    if used + #bytes > tonumber(limit) then return {'full', used} end
    redis.call('HSET', parts, number, bytes)
    redis.call('HINCRBY', sizes, id, #bytes)
    redis.call('HINCRBY', sizes, 'total', #bytes)
  end
  redis.call('PEXPIRE', parts, grace)
  redis.call('ZADD', B .. 'fileend:' .. tenant, now + grace, id)
  return {'ok'}
end)
