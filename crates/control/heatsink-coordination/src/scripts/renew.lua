-- Gives a record a new time to live if it is the expected one; no change, nobody is told.
-- ARGV from 4: key, expected epoch, ttl
local key, expects, ttl = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])

local current = live_record(key)
if not current or current.epoch ~= expects then
  return {'stale', current and current.epoch or 0}
end
local expires = digits(now + ttl)
local head = table.concat({digits(current.epoch), digits(current.created), expires}, ' ')
redis.call('HSET', REGISTRY, key, head .. ' ' .. current.body)
redis.call('ZADD', EXPIRY, expires, key)
return {'applied', current.epoch}
