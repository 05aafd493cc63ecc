-- allow-oom
-- feed: say that somebody follows many tasks. Arguments: tenant, ttl (ms) of the word.
-- Writes feed, whose value is the moment since when every change of state is noted. Answers {that
-- moment, now, how many changes are kept, id of the first, id of the last}; ids are '' for none.
if not redis.call('SET', B .. 'feed', string.format('%d', now - 1), 'NX', 'PX', ARGV[2]) then
  redis.call('PEXPIRE', B .. 'feed', ARGV[2])
end
local stream = B .. 'feed:' .. ARGV[1]
local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
return {tonumber(redis.call('GET', B .. 'feed')), now, redis.call('XLEN', stream),
  first and first[1] or '', last and last[1] or ''}
