-- What every script starts with. KEYS[1] is the common start of all keys, such as "an:{0}:".
-- The constants and the functions `read`, `packed` and `message` are generated from
-- core/states.py, core/machine.py, storage/layout.py and the Celery message templates.
-- Keys are described in storage/keys.py. Every script works through its rows one by one: checks
-- first, then writes, one verdict per row, and a row that is sent again changes nothing.
--@constants@
local B = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Numbers go to a command as texts: the server writes a number with seventeen digits' effort.
local now_text = string.format('%d', now)

-- Of the rows of one call most share tenant, worker and times: what was made of these is kept.
local trimmed = {}
local function trim(column)
  local text = trimmed[column]
  if not text then
    text = string.match(column, '^[^ %z]*')
    trimmed[column] = text
  end
  return text
end
local function key_of(id) return B .. 't:' .. id end

-- What the rows of one call put into lists and sets, or take out of them: in a script that makes
-- `gathered` a table it is written by one command per key, once all rows are through.
local gathered
local function gather(command, key, member, score)
  if not gathered then
    if score then return redis.call(command, key, score, member) end
    return redis.call(command, key, member)
  end
  local lines = gathered[command]
  if not lines then
    lines = {}
    gathered[command] = lines
  end
  local line = lines[key]
  if not line then
    line = {command, key, n = 2}
    lines[key] = line
  end
  if score then
    line[line.n + 1], line[line.n + 2], line.n = score, member, line.n + 2
  else
    line[line.n + 1], line.n = member, line.n + 1
  end
end
local function write_gathered()
  for _, lines in pairs(gathered) do
    for _, line in pairs(lines) do redis.call(unpack(line, 1, line.n)) end
  end
  gathered = nil
end

-- ISO 8601 in UTC with milliseconds, or null for 0. Days to date after Howard Hinnant,
-- "chrono-Compatible Low-Level Date Algorithms" (civil_from_days).
local days, moments = {}, {}
local function iso(ms)
  if ms <= 0 then return 'null' end
  local moment = moments[ms]
  if moment then return moment end
  local seconds = math.floor(ms / 1000)
  local day, rest = math.floor(seconds / 86400), seconds % 86400
  local date = days[day]
  if not date then
    local z = day + 719468
    local era = math.floor(z / 146097)
    local doe = z - era * 146097
    local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524)
      - math.floor(doe / 146096)) / 365)
    local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
    local mp = math.floor((5 * doy + 2) / 153)
    local month = mp < 10 and mp + 3 or mp - 9
    local year = yoe + era * 400 + (month <= 2 and 1 or 0)
    date = string.format('%04d-%02d-%02d', year, month, doy - math.floor((153 * mp + 2) / 5) + 1)
    days[day] = date
  end
  moment = string.format('"%sT%02d:%02d:%02d.%03dZ"', date, math.floor(rest / 3600),
    math.floor(rest / 60) % 60, rest % 60, ms % 1000)
  moments[ms] = moment
  return moment
end

local decimals, spaces = {}, {}
local function decimal(number)
  local text = decimals[number]
  if not text then
    text = string.format('%d', number)
    decimals[number] = text
  end
  return text
end
local function padding(width)
  local text = spaces[width]
  if not text then
    text = string.rep(' ', width)
    spaces[width] = text
  end
  return text
end

-- The document's head between what stands before it and behind it. The server hashes every string that comes into
-- being, byte by byte, so a long one is put together in one go.
local HEAD_WORDS = #('{"task_id":"","state":"","reason":,"version":,"attempt":,"losses":,"created_at":,'
  .. '"started_at":,"finished_at":,"next_attempt_at":,"expires_at":,"output_bytes":,')
local function with_head(r, control, private, tail, rest)
  local id, state, reason, version = r.id, STATE[r.state], REASON[r.reason], decimal(r.version)
  local attempt, losses, output_bytes = decimal(r.attempt), decimal(r.losses), decimal(r.output_bytes)
  local created_at, started_at, finished_at = iso(r.created_at), iso(r.started_at), iso(r.finished_at)
  local next_attempt_at, expires_at = iso(r.next_attempt_at), iso(r.expires_at)
  local size = HEAD_WORDS + #id + #state + #reason + #version + #attempt + #losses + #created_at
    + #started_at + #finished_at + #next_attempt_at + #expires_at + #output_bytes
  return control .. private .. '{"task_id":"' .. id .. '","state":"' .. state .. '","reason":' .. reason
    .. ',"version":' .. version .. ',"attempt":' .. attempt .. ',"losses":' .. losses
    .. ',"created_at":' .. created_at .. ',"started_at":' .. started_at .. ',"finished_at":'
    .. finished_at .. ',"next_attempt_at":' .. next_attempt_at .. ',"expires_at":' .. expires_at
    .. ',"output_bytes":' .. output_bytes .. ',' .. padding(HEAD - size) .. tail .. rest
end

-- The part of the record between the control block and the document, if it was read with it.
local function private_of(r)
  if r.raw and #r.raw >= r.json_at then return string.sub(r.raw, SIZE[r.schema] + 1, r.json_at) end
end

-- Write the control block, and the head when the public document changed: in one go where what
-- lies between is known.
local function save_control(r) redis.call('SETRANGE', key_of(r.id), '0', packed(r)) end
local function save(r)
  local private = private_of(r)
  if private then
    return redis.call('SETRANGE', key_of(r.id), '0', with_head(r, packed(r), private, '', ''))
  end
  save_control(r)
  redis.call('SETRANGE', key_of(r.id), r.json_at, with_head(r, '', '', '', ''))
end

local function bump(r)
  r.version = r.version + 1
  r.seq = 0
end

-- Whether somebody may be listening to many tasks at once.
local function watched_by_pattern()
  local found = redis.pcall('PUBSUB', 'NUMPAT')
  return type(found) ~= 'number' or found > 0 -- not allowed to ask: somebody may
end
-- Which of several tasks somebody may be listening to, nil for none. `channels` are those of the
-- tasks, behind 'NUMSUB'.
local function followed(ids, channels)
  if watched_by_pattern() or redis.call('EXISTS', B .. 'feed') == 1 then return ids end
  local listeners, some = redis.call('PUBSUB', unpack(channels)), nil
  for position, id in ipairs(ids) do
    if listeners[2 * position] > 0 then
      some = some or {}
      some[#some + 1] = id
    end
  end
  return some
end

-- Whether somebody may be listening to a task. A message that nobody hears is not worth making.
local patterns
local function is_watched(id)
  if patterns == nil then patterns = watched_by_pattern() end
  if patterns then return true end
  return redis.call('PUBSUB', 'NUMSUB', B .. 's:' .. id)[2] > 0
end

local function emit(r, kind, json)
  redis.call('PUBLISH', B .. 's:' .. r.id, string.format('%d-%d %s ', r.version, r.seq, kind) .. json)
end

-- While somebody follows many tasks, every change of state goes to the feed of the tenant too.
local feeding
local function feed(r)
  if feeding == nil then feeding = redis.call('EXISTS', B .. 'feed') == 1 end
  if not feeding then return end
  local tail = redis.call('GETRANGE', key_of(r.id), r.json_at + HEAD, r.inputs_at - 1)
  local shown = cjson.decode('{' .. tail .. 'null}')
  local json = string.format('{"task_id":"%s","node":%s,"state":"%s","reason":%s,"attempt":%d,'
    .. '"version":%d,"at":%s,"next_attempt_at":%s,"tags":', r.id, cjson.encode(shown.node),
    STATE[r.state], REASON[r.reason], r.attempt, r.version, iso(now), iso(r.next_attempt_at))
    .. (shown.tags[1] and cjson.encode(shown.tags) or '[]') .. '}'
  local tenant = trim(r.tenant)
  local at = redis.call('XADD', B .. 'feed:' .. tenant, 'MAXLEN', '~', 10000, '*', 'd', json)
  redis.call('PEXPIRE', B .. 'feed:' .. tenant, 600000)
  redis.call('PUBLISH', B .. 'f:' .. tenant, at .. ' state ' .. json)
end

local function emit_state(r)
  if is_watched(r.id) then
    emit(r, 'state', string.format('{"state":"%s","reason":%s,"attempt":%d,"version":%d,"at":%s,'
      .. '"next_attempt_at":%s}', STATE[r.state], REASON[r.reason], r.attempt, r.version, iso(now),
      iso(r.next_attempt_at)))
  end
  feed(r)
end

-- The part of the document that grows: attempts, then the payloads. Shorter text is padded.
local function write_end(r, entry, progress, err, usage, output)
  local text = entry .. '],"progress":' .. progress .. ',"error":' .. err .. ',"usage":' .. usage
    .. ',"output":' .. output .. '}'
  local size = r.attempts_end + #text
  if size < r.size then text = text .. string.rep(' ', r.size - size) else r.size = size end
  redis.call('SETRANGE', key_of(r.id), r.attempts_end, text)
  r.attempts_end = r.attempts_end + #entry
  r.dirty = (progress ~= 'null' or err ~= 'null') and 1 or 0
end

local function entry_of(r, outcome, err)
  return (r.attempt > 1 and ',{"attempt":' or '{"attempt":') .. decimal(r.attempt) .. ',"queued_at":'
    .. iso(r.queued_at) .. ',"started_at":' .. iso(r.started_at) .. ',"finished_at":' .. iso(now)
    .. ',"outcome":"' .. outcome .. '","error":' .. err .. ',"versions":[' .. decimal(r.queued_version)
    .. ',' .. decimal(r.started_version) .. ',' .. decimal(r.version) .. ']}'
end

local function problem(code, kind, text, retryable)
  return string.format('{"code":"%s","type":"%s","message":"%s","retryable":%s}', code, kind, text,
    retryable and 'true' or 'false')
end

-- Dispatch: the one place where a message is put into a list, and the admission gate before it.
local function sent_at(text) return tonumber(string.match(text, '"an_at": ?(%d+)') or '0') end
local function push(r, front)
  local at = now
  if front then
    -- The sweeper takes what is first in a list for its oldest: a message put in front of others
    -- may not look younger than they are, or all of them would count as vanished.
    local first = redis.call('LINDEX', QUEUE[r.list], -1)
    if first then at = math.min(now, sent_at(first)) end
  end
  r.queued = 1
  gather(front and 'RPUSH' or 'LPUSH', QUEUE[r.list],
    message(r.list, r.id, decimal(r.dispatch), decimal(at), r.timeout))
  gather('ZADD', B .. 'q:' .. LISTS[r.list], r.id, now_text)
end

local function node_of(r)
  local start = r.json_at + HEAD
  return string.match(redis.call('GETRANGE', key_of(r.id), start, start + 127), '^"node":"([^"]+)"') or ''
end
local function slot_of(r) return LISTS[r.list] .. ':' .. trim(r.tenant) end

local function dispatch(r, front)
  r.dispatch = r.dispatch + 1
  r.queued_at = now
  r.queued_version = r.version
  r.next_attempt_at = 0
  r.redispatched = 0
  if LIMIT > 0 then
    local slot = slot_of(r)
    if not front and tonumber(redis.call('HGET', B .. 'gate', slot) or '0') >= LIMIT then
      r.queued = 2
      redis.call('RPUSH', B .. 'park:' .. slot, r.id)
      return
    end
    redis.call('HINCRBY', B .. 'gate', slot, 1)
  end
  push(r, front)
end

-- The task's message no longer counts: it was claimed, or its task ended while it was out.
local function undispatch(r)
  if r.queued == 0 then return end
  local slot, parked, held = slot_of(r), r.queued == 2, r.queued == 3
  r.queued = 0
  -- From the end: what leaves the middle of a line is most often the newest, cancelled or purged.
  if held then
    if redis.call('LREM', B .. 'hold:queue:' .. LISTS[r.list], -1, r.id) == 0 then
      redis.call('LREM', B .. 'hold:node:' .. node_of(r), -1, r.id)
    end
    return
  end
  if parked then
    redis.call('LREM', B .. 'park:' .. slot, -1, r.id)
    return
  end
  gather('ZREM', B .. 'q:' .. LISTS[r.list], r.id)
  if LIMIT == 0 then return end
  if redis.call('HINCRBY', B .. 'gate', slot, -1) >= LIMIT then return end
  local waiting = redis.call('LPOP', B .. 'park:' .. slot)
  while waiting do
    local next_one = read(waiting)
    if next_one and next_one.queued == 2 then
      redis.call('HINCRBY', B .. 'gate', slot, 1)
      push(next_one)
      return save_control(next_one)
    end
    waiting = redis.call('LPOP', B .. 'park:' .. slot)
  end
end

-- Forget whom the task ran at and what would have woken it.
local function detach(r)
  if r.state == S_RUNNING then gather('SREM', B .. 'r:' .. trim(r.worker), r.id) end
  undispatch(r)
  if r.next_attempt_at > 0 then redis.call('ZREM', B .. 'due', 'w:' .. r.id) end
end

-- Keep the task as a dead letter; said before its end, because its record is kept for longer.
local function bury(r)
  local letters = B .. 'dead:' .. trim(r.tenant)
  r.ttl = math.max(r.ttl, DEAD_LETTER_MS)
  redis.call('ZADD', letters, now, r.id)
  redis.call('ZREMRANGEBYRANK', letters, 0, -10001)
end

local function has_key(r)
  local first = string.byte(r.idempotency)
  return first ~= 32 and first ~= 0
end

-- Enter a terminal state. `outcome` closes the running attempt.
local function conclude(r, state, reason, outcome, err, progress, usage, output)
  detach(r)
  local was_running = r.state == S_RUNNING
  if r.deadline > 0 then redis.call('ZREM', B .. 'due', 'd:' .. r.id) end
  if r.cancel == 1 then redis.call('ZREM', B .. 'due', 'c:' .. r.id) end
  bump(r)
  r.state, r.reason = state, reason
  r.finished_at, r.expires_at, r.next_attempt_at = now, now + r.ttl, 0
  r.output_bytes = output == 'null' and 0 or #output
  if r.schema >= 2 and #output > INLINE then
    r.apart = 1
    redis.call('SET', B .. 'o:' .. r.id, output, 'PX', r.ttl)
    output = 'null'
  end
  write_end(r, was_running and entry_of(r, outcome, err) or '', progress, err, usage, output)
  save(r)
  local ttl = decimal(r.ttl)
  redis.call('PEXPIRE', key_of(r.id), ttl)
  if r.stream == 1 then redis.call('PEXPIRE', B .. 'e:' .. r.id, ttl) end
  if r.log_bytes > 0 then redis.call('PEXPIRE', B .. 'l:' .. r.id, ttl) end
  if has_key(r) then
    redis.call('PEXPIRE', B .. 'k:' .. trim(r.tenant) .. ':' .. r.idempotency, ttl)
  end
  if is_watched(r.id) then emit(r, 'done', '{}') end
  feed(r)
end

-- Remove every trace of a task that has ended.
local function forget(r)
  redis.call('DEL', key_of(r.id), B .. 'e:' .. r.id, B .. 'o:' .. r.id, B .. 'l:' .. r.id)
  redis.call('ZREM', B .. 'x:' .. trim(r.tenant), r.id)
  redis.call('ZREM', B .. 'dead:' .. trim(r.tenant), r.id)
  if trim(r.idempotency) == '' then return end
  local replay_key = B .. 'k:' .. trim(r.tenant) .. ':' .. r.idempotency
  local first = redis.call('GET', replay_key)
  if first and string.sub(first, 1, #r.id) == r.id then redis.call('DEL', replay_key) end
end

-- Go back from Running to Pending; `due` 0 dispatches at once, to the front of the list for a task
-- that has waited its turn already and lost its process.
local function give_back(r, reason, outcome, err, due, front)
  detach(r)
  bump(r)
  r.state, r.reason, r.next_attempt_at = S_PENDING, reason, due
  write_end(r, entry_of(r, outcome, err), 'null', err, 'null', 'null')
  if due > 0 then
    redis.call('ZADD', B .. 'due', due, 'w:' .. r.id)
  else
    dispatch(r, front)
  end
  save(r)
  emit_state(r)
end

local CANCELLED = '{"code":"cancelled","type":"TaskCancelled","message":"The task was cancelled",'
  .. '"retryable":false,"stopped":%s}'
local function cancelled_error(stopped) return string.format(CANCELLED, stopped and 'true' or 'false') end
-- End a task that waits; answers its verdict.
local function cancel_waiting(r)
  conclude(r, NEXT[r.state].CANCEL, R_NONE, '', cancelled_error(true), 'null', 'null', 'null')
  -- An earlier attempt may have left something behind: some worker is to hear of this end.
  if r.attempt > 0 then redis.call('ZADD', B .. 'due', now, 'e:' .. r.id) end
  return {'cancelled', r.version}
end
local DEADLINE = problem('deadline_exceeded', 'DeadlineExceeded', 'The deadline passed', false)

-- The task is taken from its owner, whose own ending, should it still come, is to be refused.
local function void_fence(r) r.fence = string.rep(' ', 16) end

-- The process that ran the task is gone.
local function lose(r, isolated)
  if not NEXT[r.state].LOST or r.state ~= S_RUNNING then return 'stale' end
  void_fence(r)
  if r.cancel == 1 then
    conclude(r, NEXT[r.state].CANCEL, R_NONE, 'cancelled', cancelled_error(true), 'null', 'null', 'null')
    return 'cancelled'
  end
  r.losses = r.losses + 1
  r.spent = math.max(r.spent - 1, 0)
  if isolated then r.deaths = r.deaths + 1 end
  if r.deaths >= POISON_DEATHS then
    bury(r)
    conclude(r, S_FAILED, R_POISON, 'lost', problem('poison', 'Poison',
      'The task killed the process that ran it alone, ' .. r.deaths .. ' times', false),
      'null', 'null', 'null')
    return 'poison'
  end
  if r.deadline > 0 and now >= r.deadline then
    conclude(r, NEXT[r.state].TIMEOUT, R_DEADLINE, 'lost', DEADLINE, 'null', 'null', 'null')
    return 'deadline'
  end
  give_back(r, R_LOST, 'lost', problem('node_failed', 'WorkerLost',
    'The process that ran the task ended', true), 0, true)
  return 'lost'
end

-- A message that nobody will bring: send another, or give up after max_dispatches.
local function send_again(r)
  if r.redispatched >= r.max_dispatches then
    bury(r)
    conclude(r, NEXT[r.state].ERROR, R_UNDISPATCHED, '', problem('dispatch_exhausted',
      'DispatchExhausted', 'No worker claimed the task', true), 'null', 'null', 'null')
    return 'exhausted'
  end
  r.dispatch = r.dispatch + 1
  r.redispatched = r.redispatched + 1
  push(r)
  save_control(r)
  return 'again'
end

-- What is paused: scopes such as "queue:io.high" and "node:llm.chat".
local controls, any_paused
local function is_paused(scope)
  if not controls then
    controls = {}
    local flat = redis.call('HGETALL', B .. 'controls')
    for position = 1, #flat, 2 do
      if string.find(flat[position + 1], '"mode":"pause"', 1, true) then
        controls[flat[position]], any_paused = true, true
      end
    end
  end
  return any_paused and controls[scope]
end
local function paused_by(r)
  local scope = 'queue:' .. LISTS[r.list]
  if is_paused(scope) then return scope end
  if not any_paused then return nil end
  scope = 'node:' .. node_of(r)
  return is_paused(scope) and scope or nil
end

-- The message of a paused task is taken out of its list; the task waits until it is released.
local function hold(r, scope)
  undispatch(r)
  r.queued, r.reason = 3, R_PAUSED
  bump(r)
  save(r)
  redis.call('RPUSH', B .. 'hold:' .. scope, r.id)
  redis.call('SADD', B .. 'holds', scope)
  emit_state(r)
end

-- Dispatch held tasks again, the longest held first. Answers how many.
local function release(scope, most)
  if is_paused(scope) then return 0 end
  local list, released = B .. 'hold:' .. scope, 0
  while released < most do
    local id = redis.call('LPOP', list)
    if not id then
      redis.call('SREM', B .. 'holds', scope)
      break
    end
    local r = read(id)
    if r and r.state == S_PENDING and r.queued == 3 then
      bump(r)
      r.reason = R_NONE
      dispatch(r)
      save(r)
      emit_state(r)
      released = released + 1
    end
  end
  return released
end

-- A lease that has run out may still be renewed; one that was given up (0) may not be used.
local leases = {}
local function has_lease(worker)
  if leases[worker] == nil then
    local lease = redis.call('ZSCORE', B .. 'workers', trim(worker))
    leases[worker] = lease and tonumber(lease) ~= 0
  end
  return leases[worker]
end

-- Give a worker the right to run a task whose message it holds. Answers nil, or why not.
local function start(r, worker, fence)
  if not has_lease(worker) then return 'no_lease' end
  if r.deadline > 0 and now >= r.deadline then
    conclude(r, NEXT[r.state].TIMEOUT, R_DEADLINE, '', DEADLINE, 'null', 'null', 'null')
    return 'expired'
  end
  local scope = paused_by(r)
  if scope then
    hold(r, scope)
    return 'held'
  end
  undispatch(r)
  bump(r)
  r.state, r.reason, r.fence, r.worker = NEXT[r.state].START, R_NONE, fence, worker
  r.attempt, r.spent, r.redispatched = r.attempt + 1, r.spent + 1, 0
  r.chunks, r.logs = 0, 0
  r.started_at, r.started_version = now, r.version
  if r.first_started_at == 0 then r.first_started_at = now end
  if r.dirty == 1 then write_end(r, '', 'null', 'null', 'null', 'null') end
  save(r)
  gather('SADD', B .. 'r:' .. trim(worker), r.id)
  emit_state(r)
end

-- What a worker needs in order to run a task it has claimed.
local function claimed(r)
  local private = private_of(r)
    or redis.call('GETRANGE', key_of(r.id), SIZE[r.schema], r.json_at - 1)
  local inputs = ''
  if r.inputs_len > 0 then
    inputs = redis.call('GETRANGE', key_of(r.id), r.inputs_at, r.inputs_at + r.inputs_len - 1)
  end
  return {'run', r.version, r.attempt, r.spent, r.losses, r.deaths, r.queued_at, r.started_at,
    r.first_started_at, r.deadline, r.timeout, r.created_at, trim(r.tenant), private, inputs, r.list}
end

local OPEN_END = '"attempts":[],"progress":null,"error":null,"usage":null,"output":null}'

-- Accept a task, with the arguments that submit.lua describes.
local function accept(id, tenant, list, private, tail, inputs_at, inputs_len, delay, deadline,
    timeout, ttl, max_dispatches, idempotency, fingerprint)
  local known = read(id)
  if known then return {'ok', known.version, known.created_at} end
  local replay_key = string.byte(idempotency) ~= 32 and B .. 'k:' .. trim(tenant) .. ':' .. idempotency
  if replay_key then
    local earlier = redis.call('GET', replay_key)
    if earlier then
      local first, print_of_first = string.match(earlier, '^(%S+) (%S+)$')
      if first and redis.call('EXISTS', key_of(first)) == 1 then
        return {print_of_first == fingerprint and 'replay' or 'mismatch', first}
      end
    end
  end
  delay, deadline = tonumber(delay), tonumber(deadline)
  local json_at = SIZE[SCHEMA] + #private
  local attempts_at = json_at + HEAD + #tail + #'"attempts":['
  local r = {
    id = id, schema = SCHEMA, state = S_PENDING, reason = delay > 0 and R_DELAYED or R_NONE,
    list = tonumber(list), cancel = 0, queued = 0, stream = 0, dirty = 0, version = 1, seq = 0,
    attempt = 0, spent = 0, losses = 0, deaths = 0, redispatched = 0,
    max_dispatches = tonumber(max_dispatches), dispatch = 0, queued_version = 0,
    started_version = 0, timeout = tonumber(timeout), created_at = now, queued_at = 0,
    started_at = 0, first_started_at = 0, finished_at = 0,
    next_attempt_at = delay > 0 and now + delay or 0, deadline = deadline, expires_at = 0,
    ttl = tonumber(ttl), output_bytes = 0, stream_bytes = 0, chunks = 0, trimmed_version = 0,
    trimmed_seq = 0, apart = 0, logs = 0, log_bytes = 0,
    json_at = json_at, inputs_at = json_at + HEAD + tonumber(inputs_at),
    inputs_len = tonumber(inputs_len), attempts_end = attempts_at, size = attempts_at + #OPEN_END - #'"attempts":[',
    fence = string.rep(' ', 16), worker = string.rep(' ', 40), idempotency = idempotency,
    tenant = tenant,
  }
  if delay > 0 then
    redis.call('ZADD', B .. 'due', r.next_attempt_at, 'w:' .. id)
  else
    dispatch(r)
  end
  redis.call('SET', key_of(id), with_head(r, packed(r), private, tail, OPEN_END))
  gather('ZADD', B .. 'x:' .. trim(tenant), id, now_text)
  if replay_key then redis.call('SET', replay_key, id .. ' ' .. fingerprint) end
  if deadline > 0 then redis.call('ZADD', B .. 'due', deadline, 'd:' .. id) end
  emit_state(r)
  return {'ok', 1, now}
end

-- Files: what they take counts from the first piece on, until they are deleted or their time is over.
-- Redis drops the content by itself then; what is counted is put right whenever files are touched.
local function forget_file(tenant, id)
  local file, sizes = B .. 'file:' .. tenant .. ':' .. id, B .. 'filesize:' .. tenant
  local size, key = redis.call('HGET', sizes, id), redis.call('HGET', file, 'key')
  -- First what frees memory: Redis before 7.0 lets the rest pass then, however full it is.
  redis.call('UNLINK', file, B .. 'part:' .. tenant .. ':' .. id)
  if key and key ~= '' then redis.call('DEL', B .. 'filekey:' .. tenant .. ':' .. key) end
  redis.call('ZREM', B .. 'files:' .. tenant, id)
  redis.call('ZREM', B .. 'fileend:' .. tenant, id)
  if size then
    redis.call('HDEL', sizes, id)
    if size ~= '0' then redis.call('HINCRBY', sizes, 'total', '-' .. size) end  -- '-0' is no integer
  end
end
local function tidy_files(tenant)
  local over = redis.call('ZRANGEBYSCORE', B .. 'fileend:' .. tenant, '-inf', now, 'LIMIT', 0, 50)
  for _, id in ipairs(over) do forget_file(tenant, id) end
end
local function file_of(tenant, id)
  local found = redis.call('HMGET', B .. 'file:' .. tenant .. ':' .. id, 'name', 'type', 'size',
    'sha256', 'at', 'end', 'ttl')
  return found[1] and found or {}
end

local function each(stride, handle)
  local verdicts = {}
  for first = 1, #ARGV, stride do
    local ok, verdict = pcall(handle, unpack(ARGV, first, first + stride - 1))
    if not ok then
      if type(verdict) == 'table' then verdict = verdict.err end
      verdict = {'error', tostring(verdict)}
    end
    verdicts[#verdicts + 1] = verdict
  end
  return verdicts
end
