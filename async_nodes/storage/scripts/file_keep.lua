-- allow-oom
-- file_keep: look at files, and keep them for longer. Arguments: tenant, how long from now at least
-- (ms), ids. Writes file, part, fileend, filekey. Answers for each id {name, media type, size, sha256,
-- created, expires, ttl}, or {} where the tenant has no such file.
local tenant, until_then = ARGV[1], string.format('%d', now + ARGV[2])
local found = {}
for position = 3, #ARGV do
  local id = ARGV[position]
  local info = file_of(tenant, id)
  if info[1] and tonumber(info[6]) < tonumber(until_then) then
    local file = B .. 'file:' .. tenant .. ':' .. id
    redis.call('PEXPIREAT', file, until_then)
    redis.call('HSET', file, 'end', until_then)
    redis.call('PEXPIREAT', B .. 'part:' .. tenant .. ':' .. id, until_then)
    redis.call('ZADD', B .. 'fileend:' .. tenant, until_then, id)
    local key = redis.call('HGET', file, 'key')
    if key ~= '' then redis.call('PEXPIREAT', B .. 'filekey:' .. tenant .. ':' .. key, until_then) end
    info[6] = until_then
  end
  found[#found + 1] = info
end
return found
