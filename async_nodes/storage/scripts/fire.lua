-- fire: deal with a tick of a schedule, and accept its task. Row: name, version, expected, tick,
-- next, due, passed, then the 14 arguments of submit, all but the tenant blank where no task is
-- fired. `expected` is the tick that is waited for, and nothing happens if it is another by now:
-- of all who want to fire a tick, one does. Blank, the schedule is fired by hand: nothing about its
-- ticks changes, and it does not matter that it is paused. `next` and `due` are what to wait for
-- then, `passed` how many ticks are given up. Writes schedule:<tenant>:<name>, due and what submit
-- writes. Verdicts: those of submit | skipped (the task before has not ended) | passed | stale | gone.
return each(21, function(name, version, expected, tick, following, due, passed, id, tenant, ...)
  local owner = trim(tenant)
  local key = B .. 'schedule:' .. owner .. ':' .. name
  local timer = 's:' .. owner .. ':' .. name
  local by_hand = expected == ''
  local sent_before = id ~= '' and read(id)
  if sent_before then return {'ok', sent_before.version, sent_before.created_at} end
  local has = redis.call('HMGET', key, 'version', 'next', 'paused', 'overlap', 'last_task')
  if not has[1] then
    redis.call('ZREM', B .. 'due', timer)
    return {'gone'}
  end
  if has[1] ~= version then return {'stale'} end
  if not by_hand and (has[2] ~= expected or has[3] == '1') then return {'stale'} end
  local verdict = {'passed'}
  if id ~= '' then
    local before = not by_hand and has[4] == 'skip' and has[5] ~= '' and read(has[5])
    if before and next(NEXT[before.state]) then
      redis.call('HINCRBY', key, 'skipped', 1)
      verdict = {'skipped'}
    else
      verdict = accept(id, tenant, ...)
    end
  end
  if verdict[1] == 'ok' then
    redis.call('HSET', key, 'last', tick, 'last_task', id)
    redis.call('HINCRBY', key, 'fired', 1)
  end
  if by_hand then return verdict end
  if passed ~= '0' then redis.call('HINCRBY', key, 'missed', passed) end
  redis.call('HSET', key, 'next', following)
  if following == '0' then
    redis.call('ZREM', B .. 'due', timer)
  else
    redis.call('ZADD', B .. 'due', due, timer)
  end
  return verdict
end)
