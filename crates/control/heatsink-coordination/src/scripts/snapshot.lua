-- Everything: incarnation, version, time, records as they are packed, blocked keys with times.
local known = redis.call('HMGET', STATE, 'incarnation', 'version')
return {
  known[1],
  known[2],
  digits(now),
  redis.call('HGETALL', REGISTRY),
  redis.call('ZRANGE', BLOCKED, 0, -1, 'WITHSCORES'),
}
