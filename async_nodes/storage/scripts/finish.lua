-- allow-oom
-- finish: end an attempt. Row: id, fence, event (COMPLETE | ERROR | RETRY | TIMEOUT | CANCEL |
-- RELEASE), delay (ms before the next attempt), error, output, usage, progress (JSON or null).
-- Writes t, e, k, o, r:<worker>, due, the list, u:<tenant>:<day>. Once a cancel was asked for, everything but COMPLETE
-- ends in Cancelled. Verdicts: ok version state | fenced version state | gone.
local function count_usage(r, usage)
  local node = node_of(r)
  local day = string.gsub(string.sub(iso(now), 2, 11), '-', '')
  local totals = B .. 'u:' .. trim(r.tenant) .. ':' .. day
  local ok, counts = pcall(cjson.decode, usage)
  if not ok or type(counts) ~= 'table' then return end
  for name, count in pairs(counts) do
    if type(count) == 'number' and count > 0 and count < 2 ^ 53 then
      -- pcall: a total that is as large as it can be is no reason to lose the others, or the end.
      redis.pcall('HINCRBY', totals, node .. '/' .. name, string.format('%.0f', count))
    end
  end
  redis.call('PEXPIRE', totals, USAGE_MS)
end

if LIMIT == 0 then gathered = {} end -- a gate looks at what earlier rows have put out
local verdicts = each(8, function(id, fence, event, delay, err, output, usage, progress)
  local r = read(id)
  if not r then return {'gone'} end
  if r.state ~= S_RUNNING then
    -- The same row sent again after a cut connection finds its own fence.
    return {r.fence == fence and 'ok' or 'fenced', r.version, STATE[r.state]}
  end
  if r.fence ~= fence then return {'fenced', r.version, STATE[r.state]} end
  if r.cancel == 1 and event ~= 'COMPLETE' then event = 'CANCEL' end
  local target = NEXT[r.state][event]
  if not target then return {'error', 'a running task takes no ' .. event} end
  if event == 'RELEASE' then
    r.spent = math.max(r.spent - 1, 0)
    give_back(r, R_RELEASED, 'released', err, 0, true)
  elseif event == 'RETRY' then
    delay = tonumber(delay)
    if r.deadline > 0 and now + delay >= r.deadline then
      conclude(r, NEXT[r.state].ERROR, R_DEADLINE, 'failed', err, progress, usage, 'null')
    else
      give_back(r, R_BACKOFF, 'retried', err, now + math.max(delay, 1))
    end
  elseif event == 'CANCEL' then
    conclude(r, target, R_NONE, 'cancelled', cancelled_error(true), progress, usage, 'null')
  elseif event == 'COMPLETE' then
    conclude(r, target, R_NONE, 'succeeded', 'null', progress, usage, output)
  elseif event == 'TIMEOUT' then
    local late = r.deadline > 0 and now >= r.deadline
    conclude(r, target, late and R_DEADLINE or R_TIMEOUT, 'timeout', err, progress, usage, 'null')
  elseif event == 'ERROR' then
    conclude(r, target, R_NONE, 'failed', err, progress, usage, 'null')
  else
    return {'error', event .. ' is no way to end an attempt'}
  end
  if usage ~= 'null' then count_usage(r, usage) end
  return {'ok', r.version, STATE[r.state]}
end)
if gathered then write_gathered() end
return verdicts
