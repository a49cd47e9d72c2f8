-- A member is there for some more time. Returns who is, as far as the caller does not know:
-- {'applied', version of the membership, whether the bodies are all, ids, {id, body ...}}.
-- KEYS: members, presence, roster
-- ARGV: id, body, ttl, most members, the version that the caller knows (0: wants everything)
--
-- A member's value is the version that it joined with, a space, and its body. The version
-- counts joins and leaves; it starts at the time, so that one of before a loss is lower.
local MEMBERS, PRESENCE, ROSTER = KEYS[1], KEYS[2], KEYS[3]
local id, body, ttl, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local known = tonumber(ARGV[5])

local version = whole(ask('HGET', ROSTER, 'version')) or 0
local function changed()
  version = version == 0 and now or version + 1
  redis.call('HSET', ROSTER, 'version', digits(version))
end

-- One of them may have been evicted; everybody comes back with the next heartbeat.
if ask('HLEN', MEMBERS) ~= ask('ZCARD', PRESENCE) then
  redis.call('DEL', MEMBERS, PRESENCE)
  changed()
end
local gone = redis.call('ZRANGEBYSCORE', PRESENCE, '-inf', digits(now))
for _, other in ipairs(gone) do
  redis.call('HDEL', MEMBERS, other)
  redis.call('ZREM', PRESENCE, other)
end
if #gone > 0 then
  changed()
end
local before = redis.call('HGET', MEMBERS, id)
if not before and redis.call('ZCARD', PRESENCE) >= limit then
  return {'full', '0', 0, {}, {}}
end
if not before or version == 0 then
  changed()
end
local joined = before and string.match(before, '^(%d+) ') or digits(version)
redis.call('HSET', MEMBERS, id, joined .. ' ' .. body)
redis.call('ZADD', PRESENCE, digits(now + ttl), id)

if known == version then
  return {'applied', digits(version), 0, {}, {}}
end
local all = redis.call('HGETALL', MEMBERS)
local ids, bodies = {}, {}
for at = 1, #all, 2 do
  ids[#ids + 1] = all[at]
  local since, body_at = string.match(all[at + 1], '^(%d+) ()')
  if known == 0 or not since or tonumber(since) > known then
    bodies[#bodies + 1] = all[at]
    bodies[#bodies + 1] = string.sub(all[at + 1], body_at or 1)
  end
end
if known == 0 then
  ids = {}
end
return {'applied', digits(version), known == 0 and 1 or 0, ids, bodies}
