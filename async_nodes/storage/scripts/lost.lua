-- allow-oom
-- lost: a worker reports that the child which had a task is gone. Row: id, worker, dispatch (of
-- the message it came with; 0 if claimed elsewhere), isolated (1: the child ran this task alone).
-- Writes what LOST leads to. Verdicts: lost | poison | cancelled | deadline | again | exhausted |
-- stale | gone.
return each(4, function(id, worker, dispatched, isolated)
  local r = read(id)
  if not r then return {'gone'} end
  dispatched = tonumber(dispatched)
  if r.state == S_RUNNING and r.worker == worker then
    -- The same row sent again may find the worker's next attempt, which is well.
    if dispatched ~= 0 and dispatched ~= r.dispatch then return {'stale'} end
    return {lose(r, isolated == '1')}
  end
  if r.state == S_PENDING and r.queued == 1 and r.dispatch == dispatched then
    return {send_again(r)}
  end
  return {'stale'}
end)
