-- accept: accept tasks that ask for nothing unusual: no delay, no deadline, no gate. Row: id, list,
-- time-out, tenant, replay (tenant and idempotency digits, or blank), fingerprint, and the record
-- in three pieces; between the first two belongs the time of creation, packed, twice, and between
-- the last two its text. Writes what submit writes. Verdicts: the time of creation | 0, which
-- means that nothing was written and the row is one for submit.
local moment, text = struct.pack('<dd', now, now), iso(now)
local messages, waiting, indexed, verdicts = {}, {}, {}, {}
local accepted, channels = {}, {'NUMSUB'}

local function tell(ids)
  --@prelude@
  for _, id in ipairs(ids) do emit_state(read(id)) end
end

local function append(lines, name, command, key, ...)
  local line = lines[name]
  if not line then
    line = {command, key}
    lines[name] = line
  end
  local size = #line
  line[size + 1], line[size + 2] = ...
end

for position = 1, #ARGV, 9 do
  local id, list, timeout, tenant, replay, print, first, second, third = unpack(ARGV, position, position + 8)
  local at = tonumber(list)
  local verdict = LIMIT == 0 and redis.call('SETNX', key_of(id), first .. moment .. second .. text .. third)
  if verdict == 1 and replay ~= '' and redis.call('SETNX', B .. 'k:' .. replay, id .. ' ' .. print) == 0 then
    redis.call('DEL', key_of(id))
    verdict = 0
  end
  if verdict == 1 then
    append(messages, at, 'LPUSH', QUEUE[at], message(at, id, '1', now_text, timeout))
    append(waiting, at, 'ZADD', B .. 'q:' .. LISTS[at], now_text, id)
    append(indexed, tenant, 'ZADD', B .. 'x:' .. tenant, now_text, id)
    accepted[#accepted + 1], channels[#channels + 1] = id, B .. 's:' .. id
    verdict = now
  end
  verdicts[#verdicts + 1] = verdict or 0
end
for _, lines in ipairs({messages, waiting, indexed}) do
  for _, line in pairs(lines) do redis.call(unpack(line)) end
end
local watched = #accepted > 0 and followed(accepted, channels)
if watched then tell(watched) end
return verdicts
