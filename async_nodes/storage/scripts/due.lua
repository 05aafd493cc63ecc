-- allow-oom
-- due: fire the timers that are due. Arguments: how many at most, grace (ms) past a deadline
-- before a running task is ended over its worker's head, lease (ms).
-- Writes whatever the timers lead to. Answers {ms until the next timer or -1, {schedules that are
-- due}, ids that ended …}. A due schedule is offered again until somebody has fired it, and an end
-- is told again, a lease later, until somebody has said that nothing is left to clean up.
local OFFER_AGAIN = 5000
local ended, schedules = {}, {}
local function tell(r)
  ended[#ended + 1] = r.id
  if r.attempt > 0 then redis.call('ZADD', B .. 'due', now + tonumber(ARGV[3]), 'e:' .. r.id) end
end
local function wake(r)
  if r.state ~= S_PENDING or r.next_attempt_at == 0 then return end
  bump(r)
  r.reason = R_NONE
  dispatch(r)
  save(r)
  emit_state(r)
end
local function deadline(r, grace)
  if r.state == S_PENDING then
    conclude(r, NEXT[r.state].TIMEOUT, R_DEADLINE, '', DEADLINE, 'null', 'null', 'null')
  elseif r.state ~= S_RUNNING then
    return
  elseif now < r.deadline + grace then
    redis.call('ZADD', B .. 'due', r.deadline + grace, 'd:' .. r.id)
    return
  else
    void_fence(r)
    conclude(r, NEXT[r.state].TIMEOUT, R_DEADLINE, 'timeout', DEADLINE, 'null', 'null', 'null')
  end
  tell(r)
end
local function give_up_waiting(r)
  if r.state ~= S_RUNNING or r.cancel == 0 then return end
  void_fence(r)
  conclude(r, NEXT[r.state].CANCEL, R_NONE, 'cancelled', cancelled_error(false), 'null', 'null', 'null')
  tell(r)
end

local due = B .. 'due'
for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, tonumber(ARGV[1]))) do
  redis.call('ZREM', due, member)
  local kind, id = string.sub(member, 1, 1), string.sub(member, 3)
  if kind == 's' then
    redis.call('ZADD', due, now + OFFER_AGAIN, member)
    schedules[#schedules + 1] = id
  end
  local r = kind ~= 's' and read(id)
  if r then
    if kind == 'w' then
      wake(r)
    elseif kind == 'd' then
      deadline(r, tonumber(ARGV[2]))
    elseif kind == 'e' then
      -- A worker that expected an end may have died before it, and the task have gone on.
      if r.state == S_FAILED or r.state == S_CANCELLED then tell(r) end
    else
      give_up_waiting(r)
    end
  end
end
local following = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
table.insert(ended, 1, schedules)
table.insert(ended, 1, following[2] and math.max(math.ceil(tonumber(following[2]) - now), 0) or -1)
return ended
