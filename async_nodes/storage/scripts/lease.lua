-- lease: a worker's sign of life. Arguments: action (register | renew | expire | retire), worker,
-- ttl (ms), then the ids it has popped and not started, which are not to be sent again.
-- Writes workers, q:<list>. Answers 1, or 0 when the lease was lost and its tasks given away.
local action, worker, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local workers = B .. 'workers'
if action == 'register' then
  redis.call('ZADD', workers, now + ttl, worker)
  return 1
end
if not redis.call('ZSCORE', workers, worker) then return 0 end
if action == 'renew' then
  redis.call('ZADD', workers, now + ttl, worker)
elseif action == 'expire' then
  redis.call('ZADD', workers, 0, worker)
elseif redis.call('SCARD', B .. 'r:' .. worker) == 0 then
  redis.call('ZREM', workers, worker)
end
for index = 4, #ARGV do
  local r = read(ARGV[index])
  if r and r.queued == 1 then
    redis.call('ZADD', B .. 'q:' .. LISTS[r.list], 'XX', now, r.id)
  end
end
return 1
