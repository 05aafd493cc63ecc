-- release: dispatch tasks again that were held while their queue or node was paused. Row: scope, how
-- many at most. Writes t, hold:<scope>, holds, the list. Verdict: ok released left.
return each(2, function(scope, most)
  local released = release(scope, tonumber(most))
  return {'ok', released, redis.call('LLEN', B .. 'hold:' .. scope)}
end)
