-- Removes a record if it is the expected one, and blocks its key. To block a key without a
-- record is a change as well: others may know one of it.
-- ARGV from 4: key, expected epoch or 'any', time to block it for (0: none), most blocked keys
local key, expects = ARGV[4], ARGV[5]
local block_for, limit = tonumber(ARGV[6]), tonumber(ARGV[7])

local current = live_record(key)
local epoch = current and current.epoch or 0
if expects ~= 'any' and tonumber(expects) ~= epoch then
  return {current and 'stale' or 'absent', epoch}
end
local version = 0
if current then
  version = drop_record(key)
elseif block_for > 0 then
  announce('R', key)
end
if block_for > 0 then
  redis.call('ZREMRANGEBYSCORE', BLOCKED, '-inf', digits(now))
  redis.call('ZADD', BLOCKED, digits(now + block_for), key)
  -- Those whose block ends first make room.
  redis.call('ZREMRANGEBYRANK', BLOCKED, 0, -limit - 1)
end
return {current and 'applied' or 'absent', version}
