-- A member is gone. KEYS: members, presence, roster. ARGV: id
redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 and redis.call('HGET', KEYS[3], 'version') then
  redis.call('HINCRBY', KEYS[3], 'version', 1)
end
return 1
