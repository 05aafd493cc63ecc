-- allow-oom
-- lease: a worker's sign of life. Arguments: action (register | renew | expire | retire), worker,
-- ttl (ms), what it says of itself (JSON or empty), then the ids it has popped and not started,
-- which are not to be sent again. Writes workers, i:<worker>, q:<list>. Answers 1, or 0 when the lease was lost and its tasks given away.
local action, worker, ttl, info = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local workers = B .. 'workers'
if info ~= '' then redis.call('SET', B .. 'i:' .. worker, info, 'PX', 2 * ttl) end
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
  redis.call('DEL', B .. 'i:' .. worker)
end
for index = 5, #ARGV do
  local r = read(ARGV[index])
  if r and r.queued == 1 then
    redis.call('ZADD', B .. 'q:' .. LISTS[r.list], 'XX', now, r.id)
  end
end
return 1
