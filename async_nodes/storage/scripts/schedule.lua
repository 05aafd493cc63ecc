-- schedule: change a schedule. Row: what, tenant, name, nonce, version, then for create and replace
-- spec, task, shown, paused, overlap, next, due and last, for create, how many there may be or, for
-- replace, the tick that is waited for up to now; for pause reason; for resume and arm next and due;
-- the others are blank. `version` is the one that is to be changed, 0 for any; `next` the tick that
-- is waited for, 0 for none, and `due` when to fire it. Writes schedule:<tenant>:<name>, schedules,
-- due. Verdicts: ok version | exists | full | gone | conflict version | moved.
-- A row that is sent again is known by its nonce.
return each(13, function(what, tenant, name, nonce, version, spec, task, shown, paused, overlap,
    tick, due, more)
  local member = tenant .. ':' .. name
  local key, timer = B .. 'schedule:' .. member, 's:' .. member
  local index, timers = B .. 'schedules', B .. 'due'
  local function wait(at, waiting)
    if waiting then redis.call('ZADD', timers, at, timer) else redis.call('ZREM', timers, timer) end
  end
  local has = redis.call('HMGET', key, 'version', 'nonce', 'paused', 'next')
  local known = tonumber(has[1] or '0')
  if what == 'arm' then
    if known == 0 or has[3] == '1' or has[4] == '0' then
      wait(0, false)
    elseif has[4] == tick then
      wait(due, true)
    end
    return {'ok', known}
  end
  if known > 0 and has[2] == nonce then return {'ok', known} end
  if what == 'create' then
    if known > 0 then return {'exists'} end
    local there = redis.call('ZLEXCOUNT', index, '[' .. tenant .. ':', '(' .. tenant .. ';')
    if there >= tonumber(more) then return {'full'} end
    redis.call('HSET', key, 'created', now, 'last', 0, 'last_task', '', 'fired', 0, 'missed', 0,
      'skipped', 0)
    redis.call('ZADD', index, 0, member)
  elseif known == 0 then
    return {'gone'}
  elseif version ~= '0' and tonumber(version) ~= known then
    return {'conflict', known}
  elseif what == 'replace' and has[4] ~= more then
    return {'moved'}
  elseif what == 'delete' then
    redis.call('DEL', key)
    redis.call('ZREM', index, member)
    wait(0, false)
    return {'ok', known}
  elseif what == 'resume' and has[3] == '0' then
    return {'ok', known}
  end
  known = known + 1
  redis.call('HSET', key, 'version', known, 'nonce', nonce, 'updated', now)
  if what == 'pause' then
    redis.call('HSET', key, 'paused', 1, 'reason', more)
    wait(0, false)
    return {'ok', known}
  end
  if what == 'resume' then
    redis.call('HSET', key, 'paused', 0, 'reason', '', 'next', tick)
  else
    redis.call('HSET', key, 'spec', spec, 'task', task, 'shown', shown, 'overlap', overlap,
      'paused', paused, 'reason', '', 'next', tick)
  end
  wait(due, tick ~= '0' and (what == 'resume' or paused == '0'))
  return {'ok', known}
end)
