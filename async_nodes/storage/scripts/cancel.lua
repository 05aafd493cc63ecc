-- allow-oom
-- cancel: a flag, not a command. Row: id, tenant, grace (ms until the sweeper gives up waiting).
-- Writes t, due and, for a waiting task, the terminal state. Verdicts: cancelled version |
-- asked version | finished version state | gone.
return each(3, function(id, tenant, grace)
  local r = read(id)
  if not r or r.tenant ~= tenant then return {'gone'} end
  if r.state == S_PENDING then return cancel_waiting(r) end
  if not NEXT[r.state].CANCEL_ASKED then return {'finished', r.version, STATE[r.state]} end
  if r.cancel == 0 then
    r.cancel, r.reason = 1, R_CANCELLING
    bump(r)
    save(r)
    redis.call('ZADD', B .. 'due', now + tonumber(grace), 'c:' .. id)
    emit_state(r)
  end
  -- Said again for every request: the worker may have missed the first word.
  redis.call('PUBLISH', B .. 'ctl:' .. trim(r.worker), 'cancel ' .. id .. ' ' .. r.fence)
  return {'asked', r.version}
end)
