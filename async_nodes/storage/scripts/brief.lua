-- brief: what a list shows of tasks. Arguments: tenant, ids. Writes nothing. Answers for each id
-- {the document from its start to the inputs, its end from the close of the attempts on}, or {}
-- where the tenant has no such task. An output that is large is not sent along.
local briefs = {}
for position = 2, #ARGV do
  local id, parts = ARGV[position], {}
  local r = read(id)
  if r and trim(r.tenant) == ARGV[1] then
    local last = r.size - 1
    -- Records of schema 1 have outputs of any size in them, at the very end.
    if r.apart == 0 and r.output_bytes > INLINE then last = r.size - r.output_bytes end
    parts[1] = redis.call('GETRANGE', key_of(id), r.json_at, r.inputs_at - 1)
    parts[2] = redis.call('GETRANGE', key_of(id), r.attempts_end, last)
  end
  briefs[#briefs + 1] = parts
end
return briefs
