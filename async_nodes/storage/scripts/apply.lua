-- apply: progress and chunks of a running task. Row: id, fence, kind (progress | chunk), number
-- (of the chunk within its attempt, from 1; 0 for none), json.
-- Writes t and e:<id>. A chunk leaves the document and its version alone; progress changes both.
-- A chunk whose number was seen is not stored again. Verdicts: ok version cancel | fenced.
local function drop_older_half(r, stream)
  local length = redis.call('XLEN', stream)
  if length < 2 then return false end
  local dropped = redis.call('XRANGE', stream, '-', '+', 'COUNT', math.floor(length / 2))
  for _, entry in ipairs(dropped) do r.stream_bytes = r.stream_bytes - #entry[2][4] end
  -- A client that has not seen the last one dropped gets a reset from here.
  local version, seq = string.match(dropped[#dropped][1], '^(%d+)-(%d+)$')
  r.trimmed_version, r.trimmed_seq = tonumber(version), tonumber(seq)
  redis.call('XTRIM', stream, 'MAXLEN', length - #dropped)
  return true
end

local function record(r, kind, json)
  local stream = B .. 'e:' .. r.id
  redis.call('XADD', stream, string.format('%d-%d', r.version, r.seq), 't', kind, 'd', json)
  r.stream = 1
  r.stream_bytes = r.stream_bytes + #json
  while r.stream_bytes > STREAM_CAP and drop_older_half(r, stream) do end
end

return each(5, function(id, fence, kind, number, json)
  local r = read(id)
  if not r or r.state ~= S_RUNNING or r.fence ~= fence then return {'fenced'} end
  if kind == 'progress' then
    bump(r)
    record(r, kind, json)
    write_end(r, '', json, 'null', 'null', 'null')
    save(r)
  else
    number = tonumber(number)
    if number > 0 and number <= r.chunks then return {'ok', r.version, r.cancel} end
    r.seq, r.chunks = r.seq + 1, math.max(number, r.chunks)
    record(r, kind, json)
    save_control(r)
  end
  emit(r, kind, json)
  return {'ok', r.version, r.cancel}
end)
