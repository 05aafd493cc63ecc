-- allow-oom
-- take: pop messages and claim their tasks in one step, so that nothing is ever in between.
-- Arguments: worker, nonce (12 characters), how many at most, again (1: the answer to the same call
-- was lost), first (a message popped by a blocking pop, or empty), then the indexes of the lists,
-- most urgent first. Writes what claim writes, and the lists. A fence is the nonce and a number, so
-- a call that is sent again finds what it had claimed. Answers {next, id, fence, claim …} rows.
local worker, nonce, most, again, first = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local taken = {}

local function fence_of(number) return nonce .. string.format('%04d', number) end

local function take(message, list)
  local id, dispatched = addressed(message, list)
  local r = id and read(id)
  if not r or not NEXT[r.state].START or r.queued == 0 or r.queued == 3 or r.dispatch ~= dispatched then
    return
  end
  local fence = fence_of(#taken)
  local refused = start(r, worker, fence)
  if refused == 'held' then return end
  taken[#taken + 1] = {id, fence, refused or claimed(r)}
end

if again == '1' then
  for _, id in ipairs(redis.call('SMEMBERS', B .. 'r:' .. trim(worker))) do
    local r = read(id)
    if r and r.state == S_RUNNING and string.sub(r.fence, 1, #nonce) == nonce then
      taken[#taken + 1] = {id, r.fence, claimed(r)}
    end
  end
  if #taken > 0 then return taken end
end

-- Without a lease nothing may be popped: the messages wait for a worker that has one.
if not has_lease(worker) then
  local r = first ~= '' and read(addressed(first) or '')
  if r then redis.call('RPUSH', QUEUE[r.list], first) end
  return {{'', '', 'no_lease'}}
end

if LIMIT == 0 then gathered = {} end -- a gate puts messages into the lists that are popped here
if first ~= '' then pcall(take, first) end

-- A pass over the lists gives each its share, 6 : 3 : 1, and a second one whatever is left: the
-- urgent come first and nobody starves.
local share = {6, 3, 1}
local popped = 0
for pass = 1, 2 do
  for position = 6, #ARGV do
    local wanted = most - #taken
    if pass == 1 and #ARGV > 6 then
      wanted = math.min(wanted, math.ceil(most * (share[position - 5] or 1) / 10))
    end
    -- Messages that lead nowhere are dropped on the way; a bound keeps the script short.
    local list = tonumber(ARGV[position])
    while wanted > 0 and popped < 2 * most + 20 do
      local messages = redis.call('RPOP', QUEUE[list], wanted)
      if not messages then break end
      popped = popped + #messages
      local before = #taken
      -- One that cannot be read must not take the others with it: it was popped with them.
      for _, message in ipairs(messages) do pcall(take, message, list) end
      wanted = wanted - (#taken - before)
    end
  end
end
if gathered then write_gathered() end
return taken
