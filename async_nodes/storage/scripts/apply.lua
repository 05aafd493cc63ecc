-- apply: progress and chunks of a running task. Row: id, fence, kind (progress | chunk), json.
-- Writes t and e:<id>. A chunk leaves the document and its version alone; progress changes both.
-- Verdicts: ok version cancel | fenced.
local function record(r, kind, json)
  local stream = B .. 'e:' .. r.id
  redis.call('XADD', stream, string.format('%d-%d', r.version, r.seq), 't', kind, 'd', json)
  r.stream = 1
  r.stream_bytes = r.stream_bytes + #json
  if r.stream_bytes > STREAM_CAP then
    -- Drop the older half; a client that has not seen it gets a reset from `trimmed`.
    local length = redis.call('XLEN', stream)
    local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', math.floor(length / 2) + 1)
    local version, seq = string.match(oldest[#oldest - 1] and oldest[#oldest - 1][1] or '0-0', '^(%d+)-(%d+)$')
    redis.call('XTRIM', stream, 'MAXLEN', length - math.floor(length / 2))
    r.trimmed_version, r.trimmed_seq = tonumber(version), tonumber(seq)
    r.stream_bytes = math.floor(r.stream_bytes / 2)
  end
end

return each(4, function(id, fence, kind, json)
  local r = read(id)
  if not r or r.state ~= S_RUNNING or r.fence ~= fence then return {'fenced'} end
  if kind == 'progress' then
    bump(r)
    record(r, kind, json)
    write_end(r, '', json, 'null', 'null', 'null')
    save(r)
  else
    r.seq = r.seq + 1
    record(r, kind, json)
    save_control(r)
  end
  emit(r, kind, json)
  return {'ok', r.version, r.cancel}
end)
