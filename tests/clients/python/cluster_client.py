"""redis-py's cluster client, RESP2 and RESP3.

The same cases hold for a cluster of many nodes and for one that looks like a single node.
"""

import os

from harness import address, case, run, until
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException, ResponseError

HOST, PORT = address()


class Context:
    """Makes clients of one protocol version; each case starts with an empty cluster."""

    def __init__(self, protocol):
        self.protocol = protocol
        self.redis = self.client()
        self.redis.flushall(target_nodes=RedisCluster.PRIMARIES)

    def client(self, **options):
        return RedisCluster(
            startup_nodes=[ClusterNode(HOST, PORT)],
            protocol=self.protocol,
            socket_timeout=30,
            **options,
        )


@case
def every_type(context):
    r = context.redis
    assert r.set("s", "one") is True
    assert r.get("s") == b"one"
    assert r.get("none") is None
    assert r.incrby("n", 41) == 41 and r.incr("n") == 42
    assert r.hset("h", mapping={"a": 1, "b": 2}) == 2
    assert r.hgetall("h") == {b"a": b"1", b"b": b"2"}
    assert r.rpush("l", "a", "b", "c") == 3
    assert r.lrange("l", 0, -1) == [b"a", b"b", b"c"]
    assert r.sadd("set", "a", "b") == 2
    assert r.smembers("set") == {b"a", b"b"}
    assert r.zadd("z", {"a": 1, "b": 2.5}) == 2
    assert r.zscore("z", "b") == 2.5
    assert r.xadd("x", {"f": "v"}, id="1-1") == b"1-1"
    assert r.expire("s", 1000) and 990 < r.ttl("s") <= 1000
    assert r.type("z") == b"zset"
    try:
        r.incr("l")
        raise AssertionError("INCR of a list")
    except ResponseError as error:
        assert "wrong kind of value" in str(error)


@case
def keys_all_over(context):
    r = context.redis
    values = {f"k:{i}": f"v{i}" for i in range(600)}
    r.mset_nonatomic(values)
    assert r.mget_nonatomic(*values) == [value.encode() for value in values.values()]
    for key, value in values.items():
        assert r.get(key) == value.encode()
    assert r.dbsize(target_nodes=RedisCluster.PRIMARIES) == 600
    assert {key.decode() for key in r.scan_iter("k:*", count=50)} == set(values)
    assert len(list(r.scan_iter(count=10))) == 600
    found = r.keys("k:*", target_nodes=RedisCluster.PRIMARIES)
    assert {key.decode() for key in found} == set(values)
    assert r.exists(*values) == 600
    assert r.touch(*values) == 600
    assert r.unlink(*list(values)[:300]) == 300
    assert r.delete(*list(values)[300:]) == 300
    assert r.dbsize(target_nodes=RedisCluster.PRIMARIES) == 0
    assert r.randomkey(target_nodes=r.get_random_node()) is None


@case
def keys_of_one_slot(context):
    r = context.redis
    assert r.mset({"{t}a": 1, "{t}b": 2}) is True
    assert r.mget("{t}a", "{t}b", "{t}c") == [b"1", b"2", None]
    assert r.rename("{t}a", "{t}c") is True
    assert r.sadd("{t}s1", "a", "b") == 2 and r.sadd("{t}s2", "b", "c") == 2
    assert r.sinter("{t}s1", "{t}s2") == {b"b"}
    assert r.sunionstore("{t}s3", "{t}s1", "{t}s2") == 3
    assert r.rpush("{t}l", "x") == 1
    assert r.blpop(["{t}none", "{t}l"], timeout=1) in ((b"{t}l", b"x"), [b"{t}l", b"x"])
    assert r.blpop("{t}l", timeout=0.05) is None


@case
def pipelines(context):
    r = context.redis
    pipe = r.pipeline()
    for i in range(3000):
        pipe.set(f"p:{i}", i)
    for i in range(3000):
        pipe.get(f"p:{i}")
    replies = pipe.execute()
    assert replies[:3000] == [True] * 3000
    assert replies[3000:] == [str(i).encode() for i in range(3000)]
    pipe = r.pipeline()
    for _ in range(10000):
        pipe.incr("n")
    assert pipe.execute() == list(range(1, 10001))
    pipe = r.pipeline()
    pipe.set("l", "x")
    pipe.lpush("l", "y")
    pipe.get("l")
    outcome = pipe.execute(raise_on_error=False)
    assert outcome[0] is True and isinstance(outcome[1], ResponseError) and outcome[2] == b"x"


@case
def transactions(context):
    r = context.redis
    with r.pipeline(transaction=True) as pipe:
        pipe.set("{t}a", 1)
        pipe.incr("{t}a")
        pipe.get("{t}a")
        assert pipe.execute()[1:] == [2, b"2"]
    with r.pipeline(transaction=True) as pipe:
        pipe.watch("{t}a")
        pipe.multi()
        pipe.incr("{t}a")
        assert pipe.execute() == [3]


@case
def scripts(context):
    r = context.redis
    assert r.eval("return {KEYS[1], ARGV[1]}", 1, "k", "v") == [b"k", b"v"]
    assert r.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, "n", 5) == 5
    sha = r.script_load("return redis.call('GET', KEYS[1])")
    for i in range(20):
        r.set(f"s:{i}", i)
        assert r.evalsha(sha, 1, f"s:{i}") == str(i).encode()
    assert all(r.script_exists(sha))
    script = r.register_script("return redis.call('APPEND', KEYS[1], ARGV[1])")
    assert script(keys=["appended"], args=["xyz"]) == 3


@case
def messages(context):
    r = context.redis
    listener = r.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("news")
    listener.psubscribe("n*s")
    received = []

    def take():
        message = listener.get_message(timeout=0.05)
        if message:
            received.append((message["type"], message["data"]))
        return message

    until(lambda: take() is None and r.pubsub_numsub("news")[0][1] >= 1, "subscribed")
    r.publish("news", "hello")
    until(lambda: take() is None and len(received) == 2, "both messages")
    assert sorted(received) == [("message", b"hello"), ("pmessage", b"hello")]
    listener.unsubscribe("news")
    listener.punsubscribe("n*s")
    listener.close()


@case
def sharded_messages(context):
    r = context.redis
    listener = r.pubsub(ignore_subscribe_messages=True)
    channels = [f"shard:{n}" for n in range(12)]
    for channel in channels:
        listener.ssubscribe(channel)
    received = {}

    def take():
        message = listener.get_sharded_message(timeout=0.05)
        if message and message["type"] == "smessage":
            received.setdefault(message["channel"].decode(), message["data"])
        return message

    for n, channel in enumerate(channels):
        # Until somebody listens.
        until(lambda: r.spublish(channel, n) == 1 or take(), f"a listener of {channel}")
    until(lambda: not take() and len(received) == len(channels), "every message")
    assert received == {channel: str(n).encode() for n, channel in enumerate(channels)}
    for channel in channels:
        listener.sunsubscribe(channel)
    until(lambda: not take() and not listener.subscribed, "the end of all")
    listener.close()


@case
def the_cluster_itself(context):
    r = context.redis
    assert r.ping(target_nodes=RedisCluster.ALL_NODES)
    assert r.cluster_keyslot("foo") == 12182 == r.keyslot("foo")
    assert r.cluster_info(target_nodes=RedisCluster.RANDOM)["cluster_state"] == "ok"
    assert sum(end - start + 1 for start, end in r.cluster_slots()) == 16384
    assert r.cluster_nodes()
    assert r.get_primaries()
    assert "redis_version" in r.info("server", target_nodes=RedisCluster.RANDOM)
    assert r.client_id(target_nodes=RedisCluster.RANDOM) > 0
    assert r.config_get("maxmemory", target_nodes=RedisCluster.RANDOM)
    for i in range(10):
        r.set(f"{{c}}{i}", i)
    assert r.cluster_countkeysinslot(r.keyslot("{c}")) == 10
    try:
        context.client(db=1)
        raise AssertionError("a database of a cluster")
    except (RedisClusterException, ResponseError):
        pass


@case
def bytes_and_big_values(context):
    r = context.redis
    every = bytes(range(256))
    for key in (every, b"\r\n", "ключ"):
        assert r.set(key, every) and r.get(key) == every
    big = os.urandom(8 << 20)
    r.set("big", big)
    assert r.get("big") == big


run([2, 3], Context)
