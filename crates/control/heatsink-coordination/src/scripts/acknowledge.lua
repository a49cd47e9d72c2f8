-- Somebody acknowledges a topic, for some time. Without a member, nobody does; returns all who
-- have. KEYS: acks. ARGV: topic, member or nothing, time it counts for
--
-- An element is the length of the topic, the topic and the member, by the time until which it
-- counts. There are few at a time: a topic is one step that waits for the fleet.
local ACKS, topic, member = KEYS[1], ARGV[1], ARGV[2]
ask('ZREMRANGEBYSCORE', ACKS, '-inf', digits(now))
local head = #topic .. ' ' .. topic .. ' '
if member ~= '' then
  redis.call('ZADD', ACKS, digits(now + tonumber(ARGV[3])), head .. member)
  return {}
end
local members = {}
for _, element in ipairs(redis.call('ZRANGE', ACKS, 0, -1)) do
  if string.sub(element, 1, #head) == head then
    members[#members + 1] = string.sub(element, #head + 1)
  end
end
return members
