-- allow-oom
-- file_delete: remove every trace of a file, or of one that was arriving. Row: tenant, id.
-- Writes file, part, files, fileend, filesize, filekey. Verdicts: deleted | gone.
return each(2, function(tenant, id)
  local there = redis.call('EXISTS', B .. 'file:' .. tenant .. ':' .. id) == 1
  forget_file(tenant, id)
  return {there and 'deleted' or 'gone'}
end)
