-- allow-oom
-- sweep: recover what dead workers and vanished messages left. Arguments: lease (ms), ack
-- time-out (ms), rows at most, outage (ms: no sweep for so long means that nobody could renew), the
-- cursor of the walk through an index, and whose index.
-- Writes what LOST leads to; workers, i, swept, q, x, hold, due. Answers {rescued, sent again, graced, cursor of
-- the index walk, ids that ended …}.
local lease, ack_timeout, most, outage = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local workers = B .. 'workers'
local last = tonumber(redis.call('GET', B .. 'swept') or now)
redis.call('SET', B .. 'swept', string.format('%d', now))
local rescued, again, graced, ended = 0, 0, 0, {}
-- Whoever is told may die of it: the timer tells of the end again.
local function tell(r)
  ended[#ended + 1] = r.id
  if r.attempt > 0 then redis.call('ZADD', B .. 'due', now + lease, 'e:' .. r.id) end
end

if now - last > outage then
  -- Redis or all workers were away: silence proves nothing, everybody gets one more lease.
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', workers, '(0', now)) do
    redis.call('ZADD', workers, now + lease, name)
    graced = graced + 1
  end
end

for _, name in ipairs(redis.call('ZRANGEBYSCORE', workers, '-inf', now, 'LIMIT', 0, 20)) do
  local running = B .. 'r:' .. name
  for _, id in ipairs(redis.call('SRANDMEMBER', running, most - rescued) or {}) do
    local r = read(id)
    redis.call('SREM', running, id)
    if r and r.state == S_RUNNING and trim(r.worker) == name then
      local what = lose(r, false)
      rescued = rescued + 1
      if what ~= 'lost' then tell(r) end
    end
  end
  if redis.call('SCARD', running) == 0 then
    redis.call('ZREM', workers, name)
    redis.call('DEL', B .. 'i:' .. name)
  end
  if rescued >= most then break end
end

for list = 0, #LISTS do
  -- A message is missing only when the list's oldest entry is younger than it.
  local oldest = redis.call('LINDEX', QUEUE[list], -1)
  local since = oldest and sent_at(oldest) or now
  local horizon = math.min(since - 1, now - ack_timeout)
  local unclaimed = B .. 'q:' .. LISTS[list]
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', unclaimed, '-inf', horizon, 'LIMIT', 0, most)) do
    local r = read(id)
    if r and r.state == S_PENDING and r.queued == 1 then
      if send_again(r) == 'again' then again = again + 1 else tell(r) end
    else
      redis.call('ZREM', unclaimed, id)
    end
  end
end

-- Whoever resumed a queue or a node may have died before all of its tasks were dispatched.
for _, scope in ipairs(redis.call('SMEMBERS', B .. 'holds')) do release(scope, most) end

-- Walk the index a little, dropping ids whose record has expired.
local index = B .. 'x:' .. ARGV[6]
local page = redis.call('ZSCAN', index, ARGV[5] or '0', 'COUNT', 100)
for position = 1, #page[2], 2 do
  if redis.call('EXISTS', key_of(page[2][position])) == 0 then
    redis.call('ZREM', index, page[2][position])
  end
end

table.insert(ended, 1, page[1])
table.insert(ended, 1, graced)
table.insert(ended, 1, again)
table.insert(ended, 1, rescued)
return ended
