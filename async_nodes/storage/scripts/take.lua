-- allow-oom
-- take: pop messages and claim their tasks in one step, so that nothing is ever in between.
-- Arguments: worker, nonce (12 characters), how many at most, again (1: the answer to the same call
-- was lost), first (a message popped by a blocking pop, or empty) and the index of its list, then
-- the indexes of the lists, most urgent first. Writes what claim writes, and the lists. A fence is
-- the nonce and a number, so a call that is sent again finds what it had claimed.
-- Answers {now, plain, others}. Plain has two texts of each task of which nothing was heard since it
-- was accepted: the beginning of its record as it was before, at least up to the text of the time of
-- creation, and the inputs; its fence ends in its place there, from 0. Others are {id, fence, claim …}.
local worker, nonce, most, again, first = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local plain, started, ids, channels = {}, {}, {}, {'NUMSUB'}
local holder = string.match(worker, '^[^ %z]*')
local starts, behind = struct.pack('<dd', now, now), ',"started_at":' .. iso(now) .. NOT_ENDED

local made
local function general()
  if made then return made end
  --@prelude@
  local taken = {}
  if LIMIT == 0 then gathered = {} end -- a gate puts messages into the lists that are popped here

  local function take(message, list)
    local id, dispatched = addressed(message, list)
    local r = id and read(id)
    if not r or not NEXT[r.state].START or r.queued == 0 or r.queued == 3 or r.dispatch ~= dispatched then
      return
    end
    local fence = nonce .. string.format('%04d', 5000 + #taken)
    local refused = start(r, worker, fence)
    if refused == 'held' then return end
    taken[#taken + 1] = {id, fence, refused or claimed(r)}
  end

  made = {
    taken = taken,
    take = function(message, list) pcall(take, message, list) end,
    take_again = function()
      for _, id in ipairs(redis.call('SMEMBERS', B .. 'r:' .. holder)) do
        local r = read(id)
        if r and r.state == S_RUNNING and string.sub(r.fence, 1, #nonce) == nonce then
          taken[#taken + 1] = {id, r.fence, claimed(r)}
        end
      end
    end,
    put_back = function()
      local r = first ~= '' and read(addressed(first) or '')
      if r then redis.call('RPUSH', QUEUE[r.list], first) end
    end,
    tell = function(told) for _, id in ipairs(told) do emit_state(read(id)) end end,
    close = function() if gathered then write_gathered() end end,
  }
  return made
end

if again == '1' then
  local taken = general().taken
  made.take_again()
  if #taken > 0 then return {now, {}, taken} end
end

-- Without a lease nothing may be popped: the messages wait for a worker that has one.
local lease = redis.call('ZSCORE', B .. 'workers', holder)
if not lease or tonumber(lease) == 0 then
  general().put_back()
  return {now, {}, {{'', '', 'no_lease'}}}
end

local usual = LIMIT == 0 and redis.call('EXISTS', B .. 'controls') == 0

local function take_plain(message, list)
  local at = ID_AT[list]
  local id = string.sub(message, at + 1, at + 28)
  local key = key_of(id)
  local raw = redis.call('GETRANGE', key, '0', LAST_READ)
  if string.sub(raw, 1, #FRESH[list]) ~= FRESH[list] or string.find(raw, NO_DEADLINE, DEADLINE_AT + 1, true) ~= DEADLINE_AT + 1
    or not string.find(message, '"an_dispatch":1,', at, true) then return false end
  local json_at, inputs_at, inputs_len = struct.unpack('<I4I4I4', raw, PLACES_AT + 1)
  local created_at = json_at + CREATED_AT
  if created_at + MOMENT > #raw then raw = redis.call('GETRANGE', key, '0', created_at + MOMENT - 1) end
  local inputs = inputs_len > 0 and redis.call('GETRANGE', key, inputs_at, inputs_at + inputs_len - 1) or ''
  local created = string.sub(raw, created_at + 1, created_at + MOMENT)
  redis.call('SETRANGE', key, '0', CLAIMED[list] .. string.sub(raw, #CLAIMED[list] + 1, STARTED_AT) .. starts
    .. string.sub(raw, STARTED_AT + 17, FENCE_AT) .. nonce .. string.format('%04d', #ids) .. worker
    .. string.sub(raw, WORKER_END + 1, json_at + STATE_AT) .. STARTED .. created .. behind)
  plain[#plain + 1], plain[#plain + 2] = raw, inputs
  local unclaimed = started[list]
  if not unclaimed then
    unclaimed = {'ZREM', B .. 'q:' .. LISTS[list]}
    started[list] = unclaimed
  end
  unclaimed[#unclaimed + 1], ids[#ids + 1], channels[#channels + 1] = id, id, B .. 's:' .. id
  return true
end

-- One that cannot be read must not take the others with it: it was popped with them.
local function take(message, list)
  if usual and list then
    local ok, done = pcall(take_plain, message, list)
    if ok and done then return end
  end
  general().take(message, list)
end

local function count() return #ids + (made and #made.taken or 0) end

if first ~= '' then take(first, tonumber(ARGV[6])) end

-- A pass over the lists gives each its share, 6 : 3 : 1, and a second one whatever is left: the
-- urgent come first and nobody starves.
local popped, drained = 0, {}
for pass = 1, 2 do
  for position = 7, #ARGV do
    local wanted = drained[position] and 0 or most - count()
    if pass == 1 and #ARGV > 7 then
      local share = position == 7 and 6 or position == 8 and 3 or 1
      wanted = math.min(wanted, math.ceil(most * share / 10))
    end
    -- Messages that lead nowhere are dropped on the way; a bound keeps the script short.
    local list = tonumber(ARGV[position])
    while wanted > 0 and popped < 2 * most + 20 do
      local messages = redis.call('RPOP', QUEUE[list], wanted) or {}
      popped = popped + #messages
      -- A list that is empty stays so, unless a gate puts into it what had to wait before it.
      drained[position] = #messages == 0 or LIMIT == 0 and #messages < wanted
      local before = count()
      for _, message in ipairs(messages) do take(message, list) end
      wanted = drained[position] and 0 or wanted - (count() - before)
    end
  end
end
for _, unclaimed in pairs(started) do redis.call(unpack(unclaimed)) end
if #ids > 0 then
  redis.call('SADD', B .. 'r:' .. holder, unpack(ids))
  local watched = followed(ids, channels)
  if watched then general().tell(watched) end
end
if made then made.close() end
return {now, plain, made and made.taken or {}}
