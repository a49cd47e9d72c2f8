-- Whether this server is the one to talk to, and how far it is. The deletion of a field that
-- never exists changes nothing, but is refused by a replica, by a server that has lost its
-- disk or its replicas, and by a node that does not own the slot.
redis.call('HDEL', STATE, '')
return redis.call('HMGET', STATE, 'incarnation', 'version')
