-- allow-oom
-- breaker_set: write a breaker's condition if it is still the one that it was made from, or if there
-- is none. Arguments: name, version that is expected, condition (JSON), token of the trial that is
-- over with it (or blank), days after which one is forgotten that nobody used or forced, how many
-- are kept until one that is closed is not kept at all.
-- Writes breakers, breakerused, breaktrial:<name>. Answers ok, or the condition there is.
local name, expected, wanted, token, days = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local most, breakers, used = tonumber(ARGV[6]), B .. 'breakers', B .. 'breakerused'
local known = redis.call('HGET', breakers, name)
if known and string.match(known, '"version":(%d+)') ~= expected then return known end
if not known and string.find(wanted, '"state":"closed"', 1, true)
  and redis.call('HLEN', breakers) >= most then
  return 'ok'
end
redis.call('HSET', breakers, name, wanted)
redis.call('ZADD', used, now_text, name)
local trial = B .. 'breaktrial:' .. name
if token ~= '' and redis.call('GET', trial) == token then redis.call('DEL', trial) end
local before = string.format('%d', now - days * 86400000)
for _, old in ipairs(redis.call('ZRANGEBYSCORE', used, '-inf', before, 'LIMIT', 0, 10)) do
  local condition = redis.call('HGET', breakers, old)
  if not condition or string.find(condition, '"forced":""', 1, true) then
    redis.call('HDEL', breakers, old)
  end
  redis.call('ZREM', used, old)
end
return 'ok'
