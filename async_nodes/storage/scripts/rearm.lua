-- rearm: give schedules that wait and have no timer another one. Arguments: the member of the index
-- to go on behind, blank to begin; how many to look at. A timer is lost to a process of a release
-- that knows no schedules. Writes due. Answers {the last member, blank at the end; how many}.
local due, last, found = B .. 'due', '', 0
local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
local members = redis.call('ZRANGEBYLEX', B .. 'schedules', from, '+', 'LIMIT', 0, ARGV[2])
for _, member in ipairs(members) do
  last = member
  local has = redis.call('HMGET', B .. 'schedule:' .. member, 'paused', 'next')
  if has[1] == '0' and has[2] ~= '0' and not redis.call('ZSCORE', due, 's:' .. member) then
    redis.call('ZADD', due, now, 's:' .. member)
    found = found + 1
  end
end
return {#members == tonumber(ARGV[2]) and last or '', found}
