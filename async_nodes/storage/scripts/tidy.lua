-- allow-oom
-- tidy: clear what dead workers left in kombu's ledger of popped messages. Arguments: ledger hash,
-- its index (zset by time of the pop, in seconds), age (s) before an entry is looked at, rows.
-- An entry goes when its task is gone, has ended, or waits for another message. Answers how many.
local ledger, index, age, rows = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local cleared = 0
for _, tag in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', now / 1000 - age, 'LIMIT', 0, rows)) do
  local id, dispatched = string.match(tag, '^(t_%w+):(%d+)$')
  if id then
    local r = read(id)
    if not r or (r.state ~= S_RUNNING and (r.queued ~= 1 or r.dispatch ~= tonumber(dispatched))) then
      redis.call('HDEL', ledger, tag)
      redis.call('ZREM', index, tag)
      cleared = cleared + 1
    else
      -- Looked at; the next rows have their turn first.
      redis.call('ZADD', index, 'XX', now / 1000, tag)
    end
  end
end
return cleared
