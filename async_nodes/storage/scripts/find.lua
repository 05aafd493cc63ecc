-- find: walk a tenant's index, newest first, for tasks that pass a filter. Arguments: tenant, times
-- between which the task was made (ms, both exclusive, or -inf and +inf), score and id of the last
-- one looked at by an earlier call (or blank), how many to look at, how many to find, numbers of
-- states and of lists (in commas, ",0,3,", or blank), how many nodes follow, the nodes, the tags.
-- Writes nothing. A task of one of the nodes and with all of the tags passes.
-- Answers {1 if there are more, looked at, score, id, score, id …}: first the place to go on from.
local tenant, after, before, last_score, last_id = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local look, wanted, states, lists = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], ARGV[9]
local index = B .. 'x:' .. tenant
local nodes, tags, any_node = {}, {}, tonumber(ARGV[10]) > 0
for position = 11, #ARGV do
  if position <= 10 + tonumber(ARGV[10]) then
    nodes[ARGV[position]] = true
  else
    tags[#tags + 1] = ARGV[position]
  end
end

-- The rank behind the last one. It may be gone by now, and many share a millisecond: among those
-- the index goes by id, downwards.
local function rank_behind(score, id)
  local low = redis.call('ZCOUNT', index, '(' .. score, '+inf')
  local high = redis.call('ZCOUNT', index, score, '+inf')
  while low < high do
    local middle = math.floor((low + high) / 2)
    if redis.call('ZREVRANGE', index, middle, middle)[1] < id then high = middle else low = middle + 1 end
  end
  return low
end

local function has_tags(tail)
  local _, opened = string.find(tail, '"tags":', 1, true)
  local closed = opened and string.find(tail, '],"metadata":', opened, true)
  if not closed then return false end
  local has = {}
  for _, tag in ipairs(cjson.decode(string.sub(tail, opened + 1, closed))) do has[tag] = true end
  for _, tag in ipairs(tags) do
    if not has[tag] then return false end
  end
  return true
end

local function passes(id)
  local r = read(id)
  if not r then return false end
  if states ~= '' and not string.find(states, ',' .. r.state .. ',', 1, true) then return false end
  if lists ~= '' and not string.find(lists, ',' .. r.list .. ',', 1, true) then return false end
  if not any_node and #tags == 0 then return true end
  local tail = redis.call('GETRANGE', key_of(id), r.json_at + HEAD, r.inputs_at - 1)
  if any_node and not nodes[string.match(tail, '^"node":"([^"]+)"') or ''] then return false end
  return #tags == 0 or has_tags(tail)
end

local start = before == '+inf' and 0 or redis.call('ZCOUNT', index, before, '+inf')
if last_id ~= '' then start = math.max(start, rank_behind(last_score, last_id)) end
local page = redis.call('ZREVRANGE', index, start, start + look - 1, 'WITHSCORES')
local more, looked, found = #page == 2 * look and 1 or 0, 0, {}
local oldest = after == '-inf' and -math.huge or tonumber(after)
for position = 1, #page, 2 do
  local id, score = page[position], page[position + 1]
  if tonumber(score) <= oldest then
    more = 0
    break
  end
  looked, last_score, last_id = looked + 1, score, id
  if passes(id) then
    found[#found + 1] = score
    found[#found + 1] = id
    if #found == 2 * wanted then
      if position + 2 <= #page then more = 1 end
      break
    end
  end
end
return {more, looked, last_score, last_id, unpack(found)}
