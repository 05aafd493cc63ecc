-- allow-oom
-- file_list: show a tenant's files, the youngest first. Arguments: tenant, id of the last one shown
-- (or empty), how many. Writes what is counted of files that have expired. Answers {bytes that all
-- files take, 1 if there may be more, id, {name, media type, size, sha256, created, expires, ttl}, …}.
local tenant, last, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
tidy_files(tenant)
local from = last == '' and '+' or '(' .. last
local ids = redis.call('ZREVRANGEBYLEX', B .. 'files:' .. tenant, from, '-', 'LIMIT', 0, most + 1)
local answer = {tonumber(redis.call('HGET', B .. 'filesize:' .. tenant, 'total') or '0'), #ids > most and 1 or 0}
for position = 1, math.min(#ids, most) do
  answer[#answer + 1] = ids[position]
  answer[#answer + 1] = file_of(tenant, ids[position])
end
return answer
