-- Removes what has expired. ARGV from 4: most records to remove now
redis.call('ZREMRANGEBYSCORE', BLOCKED, '-inf', digits(now))
return sweep(tonumber(ARGV[4]))
