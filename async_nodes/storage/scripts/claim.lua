-- allow-oom
-- claim: turn a wake-up message into a fenced right to run. Row: id, dispatch, worker, fence.
-- Writes t, q, r:<worker>. Verdicts: run version attempt spent losses deaths queued started
-- first_started deadline timeout created tenant private inputs list | stale state | expired | held |
-- no_lease | gone.
if LIMIT == 0 then gathered = {} end -- a gate looks at what earlier rows have put out
local verdicts = each(4, function(id, dispatched, worker, fence)
  local r = read(id)
  if not r then return {'gone'} end
  if r.state ~= S_RUNNING or r.fence ~= fence then -- else the same row is sent again
    if not NEXT[r.state].START or r.queued == 0 or r.queued == 3
      or r.dispatch ~= tonumber(dispatched) then
      return {'stale', STATE[r.state]}
    end
    local refused = start(r, worker, fence)
    if refused then return {refused} end
  end
  return claimed(r)
end)
if gathered then write_gathered() end
return verdicts
