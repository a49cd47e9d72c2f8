-- Common to all scripts on the registry; each of them goes on below this part.
--
-- KEYS: state, registry, expiry, blocked
-- ARGV: PUBLISH or SPUBLISH, the channel of changes, an incarnation in case one is needed,
--       then the script's own

local STATE, REGISTRY, EXPIRY, BLOCKED = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local PUBLISH, CHANGES, CANDIDATE = ARGV[1], ARGV[2], ARGV[3]

-- The parts may have been evicted, deleted or restored one by one. Unless they agree, what is
-- left of the records is no registry: start a new one. Its versions begin at the time, so that
-- an epoch of a lost incarnation is not mistaken for one of this.
local state = ask('HMGET', STATE, 'incarnation', 'version', 'count')
local count = whole(state[3])
local records, expiries = ask('HLEN', REGISTRY), ask('ZCARD', EXPIRY)
ask('ZCARD', BLOCKED)
if not state[1] or not whole(state[2]) or records ~= count or expiries ~= count then
  local version = math.max(now, (whole(state[2]) or 0) + 1)
  redis.call('DEL', REGISTRY, EXPIRY)
  redis.call('HSET', STATE, 'incarnation', CANDIDATE, 'version', digits(version), 'count', '0')
end

-- Counts a change and tells everybody: kind, version, time, length of the key, the key, and
-- what `rest` makes of the version. If this may not be told, it is not counted, and the
-- script ends here: so nothing else of a change is written before it is told. The first
-- write comes before the message, because a server that takes no writes refuses that one.
local function announce(kind, key, rest)
  local version = redis.call('HINCRBY', STATE, 'version', 1)
  local head = table.concat({kind, digits(version), digits(now), digits(#key)}, ' ')
  local packed = rest and rest(digits(version)) or ''
  local told = redis.pcall(PUBLISH, CHANGES, head .. ' ' .. key .. packed)
  if type(told) == 'table' and told.err then
    redis.call('HINCRBY', STATE, 'version', -1)
    error(told.err, 0)
  end
  return version, packed
end

local function drop_record(key)
  local version = announce('R', key)
  redis.call('HINCRBY', STATE, 'count', -1)
  redis.call('HDEL', REGISTRY, key)
  redis.call('ZREM', EXPIRY, key)
  return version
end

-- Writes a record that is there (added = 0) or not (added = 1). `expires` 0 means never.
local function write_record(key, created, expires, body, added)
  local version, packed = announce('P', key, function(epoch)
    return table.concat({epoch, digits(created), digits(expires), body}, ' ')
  end)
  if added ~= 0 then
    redis.call('HINCRBY', STATE, 'count', added)
  end
  redis.call('HSET', REGISTRY, key, packed)
  redis.call('ZADD', EXPIRY, expires == 0 and '+inf' or digits(expires), key)
  return version
end

-- The parts of a record, or nil if it is none of ours.
local function unpack_record(packed)
  local epoch, created, expires, body_at = string.match(packed, '^(%d+) (%d+) (%d+) ()')
  if not epoch then
    return nil
  end
  return {
    epoch = tonumber(epoch),
    created = tonumber(created),
    expires = tonumber(expires),
    body = string.sub(packed, body_at),
  }
end

-- The record of a key, or nil. One that has expired, or that cannot be read, is removed first,
-- as a sweep would.
local function live_record(key)
  local packed = redis.call('HGET', REGISTRY, key)
  if not packed then
    return nil
  end
  local record = unpack_record(packed)
  if not record or record.expires ~= 0 and record.expires <= now then
    drop_record(key)
    return nil
  end
  return record
end

-- Removes records that have expired, the oldest first; returns how many, at most `limit`.
local function sweep(limit)
  local expired = redis.call('ZRANGEBYSCORE', EXPIRY, '-inf', digits(now), 'LIMIT', 0, limit)
  for _, key in ipairs(expired) do
    drop_record(key)
  end
  return #expired
end
