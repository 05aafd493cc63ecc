-- allow-oom
-- end: see to it that the clean-up after a task's end is not lost with the worker that has it. Row:
-- id, what (expect: whoever sends this is about to end the task; begin: it cleans up now; still: it
-- goes on doing so; done), lease (ms), after which others are told of the end.
-- Writes due, tried. Verdict: ok, and how many have begun.
local KEPT = 7 * 86400000
return each(3, function(id, what, lease)
  local due, timer, tried = B .. 'due', 'e:' .. id, B .. 'tried:' .. id
  if what == 'done' then
    redis.call('ZREM', due, timer)
    redis.call('DEL', tried)
    return {'ok', 0}
  end
  local at = now + tonumber(lease)
  if what == 'still' then
    redis.call('ZADD', due, 'XX', at, timer)
    return {'ok', 0}
  end
  redis.call('ZADD', due, at, timer)
  if what == 'expect' then return {'ok', 0} end
  local begun = redis.call('INCR', tried)
  redis.call('PEXPIRE', tried, KEPT)
  return {'ok', begun}
end)
