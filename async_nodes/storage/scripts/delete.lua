-- allow-oom
-- delete: remove every trace of a task that has ended. Row: id, tenant. Verdicts: deleted |
-- unfinished version state | closing version state | gone.
return each(2, function(id, tenant)
  local r = read(id)
  if not r or r.tenant ~= tenant then return {'gone'} end
  if next(NEXT[r.state]) then return {'unfinished', r.version, STATE[r.state]} end
  -- A worker has yet to read what it is to clean up after.
  if r.state ~= S_SUCCEEDED and redis.call('ZSCORE', B .. 'due', 'e:' .. id) then return {'closing', r.version, STATE[r.state]} end
  forget(r)
  return {'deleted'}
end)
