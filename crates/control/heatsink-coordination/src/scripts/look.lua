-- Whether a fleet keeps anything here. The deletion of a field that never exists creates nothing,
-- but is refused by a server that takes no writes; see the pulse. KEYS: state and others
ask('HDEL', KEYS[1], '')
return ask('HLEN', KEYS[1])
