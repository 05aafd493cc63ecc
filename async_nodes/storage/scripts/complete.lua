-- allow-oom
-- complete: end attempts that succeeded and of which nothing was heard since `take` claimed them.
-- Row: id, fence, how the record begins then, replay (as in accept), worker, ttl (ms), where the
-- attempts end, the record up to the time of the end, the record from behind the time of expiry up
-- to the text of the first, the head's end, the attempt up to its end, and the rest.
-- Writes what finish writes. Verdicts: 1 | 0, which means that nothing was written and the row is
-- one for finish.
local ended, endings, channels, done, expiries, verdicts = struct.pack('<d', now), {}, {'NUMSUB'}, {}, {}, {}
local text = iso(now)

local function tell(ids)
  --@prelude@
  for _, id in ipairs(ids) do
    local r = read(id)
    if is_watched(id) then emit(r, 'done', '{}') end
    feed(r)
  end
end

local function expiry_of(ttl)
  local expiry = expiries[ttl]
  if not expiry then
    local at = now + tonumber(ttl)
    expiry = {struct.pack('<d', at), text .. EXPIRES .. iso(at)}
    expiries[ttl] = expiry
  end
  return expiry
end

for position = 1, #ARGV, 12 do
  local id, fence, before, replay, worker, ttl, attempts_end, first, second, third, entry, rest =
    unpack(ARGV, position, position + 11)
  local key, verdict = key_of(id), 0
  local control = redis.call('GETRANGE', key, '0', CONTROL_END)
  if string.sub(control, 1, #before) == before and string.sub(control, FENCE_AT + 1, FENCE_AT + 16) == fence
    and string.sub(control, LAST_AT + 1) == NO_LOG then
    local expiry = expiry_of(ttl)
    redis.call('SETRANGE', key, '0', first .. ended .. NOT_DUE .. expiry[1] .. second .. expiry[2] .. third)
    redis.call('SETRANGE', key, attempts_end, entry .. text .. rest)
    redis.call('PEXPIRE', key, ttl)
    if replay ~= '' then redis.call('PEXPIRE', B .. 'k:' .. replay, ttl) end
    local line = endings[worker]
    if not line then
      line = {'SREM', B .. 'r:' .. worker}
      endings[worker] = line
    end
    line[#line + 1], done[#done + 1], channels[#channels + 1] = id, id, B .. 's:' .. id
    verdict = 1
  end
  verdicts[#verdicts + 1] = verdict
end
for _, line in pairs(endings) do redis.call(unpack(line)) end
local watched = #done > 0 and followed(done, channels)
if watched then tell(watched) end
return verdicts
