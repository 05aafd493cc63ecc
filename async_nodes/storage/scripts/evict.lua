-- allow-oom
-- evict: make room by forgetting tasks before their time, the oldest first. Arguments: tenant, offset
-- (how many of the oldest are known to have to stay), how many to look at, age (ms since its end
-- that a task has to have: somebody may still be about to read it), letters (1: dead letters too, and
-- tasks whose node is still to clean up after them).
-- Writes whatever the tasks are kept in. Answers {removed, stay, looked at}.
local tenant, offset, most, age = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local index, letters = B .. 'x:' .. tenant, B .. 'dead:' .. tenant
local oldest = redis.call('ZRANGE', index, offset, offset + most - 1)
local removed, stay = 0, 0
local function matters(r)
  return redis.call('ZSCORE', letters, r.id)
    or r.state ~= S_SUCCEEDED and redis.call('ZSCORE', B .. 'due', 'e:' .. r.id)
end
for _, id in ipairs(oldest) do
  local r = read(id)
  if not r then
    redis.call('ZREM', index, id)
  elseif r.finished_at > 0 and now - r.finished_at >= age
      and (ARGV[5] == '1' or not matters(r)) then
    forget(r)
    removed = removed + 1
  else
    stay = stay + 1
  end
end
return {removed, stay, #oldest}
