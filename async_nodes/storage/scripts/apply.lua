-- apply: progress, chunks and log lines of a running task. Row: id, fence, kind (progress | chunk |
-- log), number (of the chunk or line within its attempt, from 1; 0 for none), json.
-- Writes t and e:<id> or l:<id>. Chunks and lines leave the document and its version alone; progress
-- changes both. What has a number that was seen is not stored again. Verdicts: ok version cancel |
-- fenced.
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

local function write_log(r, number, json)
  if r.schema < 2 or number <= r.logs then return end
  local lines = B .. 'l:' .. r.id
  redis.call('XADD', lines, string.format('%d-%d', r.version, number), 't', 'log', 'd', json)
  r.logs, r.log_bytes = number, r.log_bytes + #json
  if r.expires_at > 0 then redis.call('PEXPIREAT', lines, string.format('%d', r.expires_at)) end
  if r.log_bytes > LOG_CAP then
    local dropped = redis.call('XRANGE', lines, '-', '+', 'COUNT', math.floor(redis.call('XLEN', lines) / 2))
    for _, entry in ipairs(dropped) do r.log_bytes = r.log_bytes - #entry[2][4] end
    redis.call('XTRIM', lines, 'MAXLEN', redis.call('XLEN', lines) - #dropped)
  end
  save_control(r)
  redis.call('PUBLISH', B .. 's:' .. r.id, string.format('%d-%d log ', r.version, number) .. json)
end

return each(5, function(id, fence, kind, number, json)
  local r = read(id)
  -- A clean-up runs after the end, under the fence that the record was left with; it may log.
  local cleaning = kind == 'log' and r and r.expires_at > 0
  if not r or (r.state ~= S_RUNNING and not cleaning) or r.fence ~= fence then return {'fenced'} end
  if kind == 'log' then
    write_log(r, tonumber(number), json)
    return {'ok', r.version, r.cancel}
  end
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
