-- allow-oom
-- control: pause or drain a queue or a node, or end that. Arguments: scope, mode (pause | drain, or
-- blank to end either), reason (JSON text; null keeps the one that was given before).
-- Writes controls. Answers what is in force now, as JSON or blank. The same said again changes
-- nothing, least of all since when it holds.
local scope, mode, reason = ARGV[1], ARGV[2], ARGV[3]
local controls = B .. 'controls'
if mode == '' then
  redis.call('HDEL', controls, scope)
  return ''
end
local since = now
local known = redis.call('HGET', controls, scope)
if known and string.find(known, '"mode":"' .. mode .. '"', 1, true) then
  if reason == 'null' then return known end
  since = tonumber(string.match(known, '"since":(%d+)')) or now
end
local made = string.format('{"mode":"%s","since":%d,"reason":', mode, since) .. reason .. '}'
redis.call('HSET', controls, scope, made)
return made
