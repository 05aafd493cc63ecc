-- allow-oom
-- breaker_trial: the one call that a half-open breaker lets through, in the whole cluster. Arguments:
-- name, what (take | keep | give), token, ms for which it is believed that it goes on.
-- Writes breaktrial:<name>. Answers: taken, busy (another one goes on), closed or open; then ms to wait
-- (-1 for as long as it is forced open), now, condition (JSON or blank, which is for the caller to
-- write again).
local name, what, token, ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local key = B .. 'breaktrial:' .. name
if what ~= 'take' then
  local mine = redis.call('GET', key) == token
  if mine and what == 'keep' then redis.call('PEXPIRE', key, ms) end
  if mine and what == 'give' then redis.call('DEL', key) end
  return {mine and 'taken' or 'busy', '0', now_text, ''}
end
local known = redis.call('HGET', B .. 'breakers', name) or ''
local state = string.match(known, '"state":"([%a-]+)"')
if state == 'closed' then return {'closed', '0', now_text, known} end
if state == 'open' then
  if not string.find(known, '"forced":""', 1, true) then return {'open', '-1', now_text, known} end
  local left = tonumber(string.match(known, '"until_ms":(%d+)')) - now
  if left > 0 then return {'open', string.format('%d', left), now_text, known} end
end
if redis.call('SET', key, token, 'NX', 'PX', ms) then return {'taken', '0', now_text, known} end
return {'busy', '0', now_text, known}
