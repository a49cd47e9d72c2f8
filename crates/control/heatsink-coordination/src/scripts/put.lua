-- Writes a record if what is there is what is expected.
-- ARGV from 4: key, body, ttl (0: none), expected epoch or 'any', whether to respect a block,
--              whether to keep the creation time, most records
local key, body, ttl, expects = ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7]
local respects_block, keep_created, limit = ARGV[8] == '1', ARGV[9] == '1', tonumber(ARGV[10])

local current = live_record(key)
local epoch = current and current.epoch or 0
if expects ~= 'any' and tonumber(expects) ~= epoch then
  return {'stale', epoch}
end
if respects_block then
  local blocked_until = tonumber(redis.call('ZSCORE', BLOCKED, key) or 0)
  if blocked_until > now then
    return {'blocked', blocked_until - now}
  end
end
if not current and redis.call('HLEN', REGISTRY) >= limit then
  sweep(limit)
  if redis.call('HLEN', REGISTRY) >= limit then
    return {'full', 0}
  end
end
local created = current and keep_created and current.created or now
local expires = ttl == 0 and 0 or now + ttl
local version = write_record(key, created, expires, body, current and 0 or 1)
if not respects_block then
  redis.call('ZREM', BLOCKED, key)
end
return {'applied', version}
