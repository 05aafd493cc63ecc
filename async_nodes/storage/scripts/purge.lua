-- allow-oom
-- purge: cancel tasks that wait; those that have started meanwhile are left alone. Row: id, tenant.
-- Writes what cancel writes. Verdicts: cancelled version | passed version state | gone.
return each(2, function(id, tenant)
  local r = read(id)
  if not r or r.tenant ~= tenant then return {'gone'} end
  if r.state ~= S_PENDING then return {'passed', r.version, STATE[r.state]} end
  return cancel_waiting(r)
end)
