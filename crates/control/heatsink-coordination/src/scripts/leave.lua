-- A member is gone. The last one to go leaves nothing behind that says nothing.
-- KEYS: members, presence, roster, state, registry, expiry, blocked, acks. ARGV: id
ask('ZREM', KEYS[2], ARGV[1])
if ask('HDEL', KEYS[1], ARGV[1]) == 1 and whole(ask('HGET', KEYS[3], 'version')) then
  redis.call('HINCRBY', KEYS[3], 'version', 1)
end
local function has_later(key)
  return #ask('ZRANGEBYSCORE', key, '(' .. digits(now), '+inf', 'LIMIT', 0, 1) > 0
end
if not has_later(KEYS[2]) and not has_later(KEYS[7]) and ask('HLEN', KEYS[5]) == 0 then
  redis.call('DEL', unpack(KEYS))
end
return 1
