-- breaker: add what calls did to the counts of this moment's slice, and tell what is known. Row: name,
-- slice (ms), slices that are kept, counts ("calls failures size:calls ..." or blank for none).
-- Writes breakcount:<name>. Verdict: ok, condition (JSON or blank), now, slice counts slice counts ...
local function added(known, more)
  local calls, failures, sizes, order = 0, 0, {}, {}
  for _, text in ipairs({known, more}) do
    local c, f, rest = string.match(text, '^(%d+) (%d+)(.*)$')
    calls, failures = calls + c, failures + f
    for size, count in string.gmatch(rest, '(%d+):(%d+)') do
      if not sizes[size] then order[#order + 1] = size end
      sizes[size] = (sizes[size] or 0) + count
    end
  end
  local parts = {string.format('%d %d', calls, failures)}
  for _, size in ipairs(order) do parts[#parts + 1] = string.format('%s:%d', size, sizes[size]) end
  return table.concat(parts, ' ')
end
return each(4, function(name, slice_ms, most, counts)
  local key = B .. 'breakcount:' .. name
  local slice = math.floor(now / slice_ms)
  if counts ~= '' then
    local field = string.format('%d', slice)
    local known = redis.call('HGET', key, field)
    redis.call('HSET', key, field, known and added(known, counts) or counts)
    redis.call('PEXPIRE', key, string.format('%d', slice_ms * most + 60000))
  end
  local verdict = {'ok', redis.call('HGET', B .. 'breakers', name) or '', now_text}
  local flat = redis.call('HGETALL', key)
  for at = 1, #flat, 2 do
    if tonumber(flat[at]) <= slice - most then
      redis.call('HDEL', key, flat[at])
    else
      verdict[#verdict + 1], verdict[#verdict + 2] = flat[at], flat[at + 1]
    end
  end
  return verdict
end)
