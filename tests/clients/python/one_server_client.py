"""redis-py's ordinary client on one server, or on what is a cluster and looks like one.

What a cluster cannot do at all (several databases, transactions over several slots) is not
asked for.
"""

import threading

import redis
from harness import address, case, run, until

HOST, PORT = address()


class Context:
    def __init__(self, protocol):
        self.protocol = protocol
        self.redis = self.client()
        self.redis.flushall()

    def client(self, **options):
        return redis.Redis(
            host=HOST, port=PORT, protocol=self.protocol, socket_timeout=30, **options
        )


@case
def keys_all_over(context):
    r = context.redis
    values = {f"k:{i}": f"v{i}" for i in range(600)}
    assert r.mset(values) is True
    assert r.mget(*values, "none") == [value.encode() for value in values.values()] + [None]
    assert r.dbsize() == 600
    assert {key.decode() for key in r.scan_iter("k:*", count=50)} == set(values)
    assert {key.decode() for key in r.keys("k:*")} == set(values)
    assert r.exists(*values) == 600 and r.touch(*values) == 600
    assert r.randomkey().decode() in values
    assert r.unlink(*list(values)[:300]) == 300
    assert r.delete(*list(values)[300:]) == 300
    assert r.dbsize() == 0
    # Many at a time, as a cache that is warmed.
    many = {f"many:{i}": i for i in range(20000)}
    assert r.mset(many) is True
    assert r.mget(*many) == [str(i).encode() for i in range(20000)]
    assert r.flushall() is True and r.dbsize() == 0


@case
def pipelines(context):
    pipe = context.redis.pipeline(transaction=False)
    for i in range(5000):
        pipe.set(f"p:{i}", i)
        pipe.get(f"p:{i}")
        pipe.incr("n")
    replies = pipe.execute()
    assert replies[1::3] == [str(i).encode() for i in range(5000)]
    assert replies[2::3] == list(range(1, 5001))


@case
def transactions(context):
    r = context.redis
    for tag in ("{a}", "{b}", "{c}", "{d}"):
        with r.pipeline() as pipe:
            pipe.set(f"{tag}1", 1)
            pipe.incr(f"{tag}1")
            pipe.mget(f"{tag}1", f"{tag}2")
            assert pipe.execute() == [True, 2, [b"2", None]]
        with r.pipeline() as pipe:
            pipe.watch(f"{tag}1")
            r.set(f"{tag}1", "changed")
            pipe.multi()
            pipe.set(f"{tag}1", "lost")
            try:
                pipe.execute()
                raise AssertionError("the watched key was changed")
            except redis.WatchError:
                pass
        assert r.get(f"{tag}1") == b"changed"


@case
def scripts(context):
    r = context.redis
    script = r.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    for i in range(30):
        assert script(keys=[f"s:{i}"], args=[i]) == i
    sha = r.script_load("return ARGV[1]")
    assert r.script_exists(sha) == [True]
    for i in range(30):
        assert r.evalsha(sha, 1, f"s:{i}", "x") == b"x"
    r.function_load("#!lua name=l\nredis.register_function('f', function(k) return k[1] end)", True)
    for i in range(30):
        assert r.fcall("f", 1, f"s:{i}") == f"s:{i}".encode()
    assert r.function_delete("l")
    assert r.script_flush()


@case
def messages(context):
    r = context.redis
    listener = context.client().pubsub(ignore_subscribe_messages=True)
    listener.subscribe("news")
    listener.psubscribe("n*s")
    until(lambda: r.pubsub_numsub("news")[0][1] == 1 and r.pubsub_numpat() == 1, "subscribed")
    received = []
    for n in range(100):
        r.publish("news", n)

    def take():
        message = listener.get_message(timeout=0.05)
        if message:
            received.append((message["type"], int(message["data"])))
        return len(received)

    until(lambda: take() == 200, "every message")
    for kind in ("message", "pmessage"):
        assert [data for got, data in received if got == kind] == list(range(100))
    listener.close()


@case
def sharded_messages(context):
    r = context.redis
    listener = context.client().pubsub()
    channels = [f"shard:{n}" for n in range(12)]
    for channel in channels:
        listener.ssubscribe(channel)
    received = []

    def take():
        message = listener.get_message(timeout=0.05)
        if message:
            received.append((message["type"], message["channel"].decode(), message["data"]))
        return len(received)

    until(lambda: take() == 12, "every confirmation")
    assert received == [("ssubscribe", channel, n + 1) for n, channel in enumerate(channels)]
    for channel in channels:
        assert r.spublish(channel, "x") == 1
    until(lambda: take() == 24, "every message")
    assert sorted(received[12:]) == sorted(("smessage", channel, b"x") for channel in channels)
    listener.sunsubscribe()
    until(lambda: take() == 36, "the end of all")
    assert [left for _, _, left in received[24:]] == list(range(11, -1, -1))
    listener.close()


@case
def blocking(context):
    for key in ("q1", "q2", "q3", "q4"):
        result = []
        waiter = threading.Thread(
            target=lambda: result.append(context.client().blpop(key, 20)), daemon=True
        )
        waiter.start()
        until(lambda: context.redis.info("clients")["blocked_clients"] >= 1, "blocked")
        context.redis.rpush(key, "x")
        waiter.join(20)
        assert tuple(result[0]) == (key.encode(), b"x")


@case
def large_and_odd(context):
    r = context.redis
    big = bytes(range(256)) * 40000
    for key in (b"big", b"\r\n", bytes(range(256))):
        assert r.set(key, big) and r.get(key) == big
    assert r.hset("h", mapping={str(i): i for i in range(5000)}) == 5000
    assert len(dict(r.hscan_iter("h"))) == 5000
    assert len(r.hgetall("h")) == 5000


@case
def the_server_itself(context):
    r = context.redis
    assert "redis_version" in r.info("server")
    assert "maxmemory" in r.config_get("maxmem*")
    assert r.ping() and r.echo("x") == b"x"
    assert isinstance(r.time()[0], int)
    assert r.client_setname("named") and r.client_getname() in ("named", b"named")
    assert any(client["name"] == "named" for client in r.client_list())
    assert r.memory_usage("none") is None
    r.lpush("list", "x")
    for command in (lambda: r.incr("list"), lambda: r.execute_command("NOSUCH")):
        try:
            command()
            raise AssertionError("an error was expected")
        except redis.ResponseError:
            pass


run([2, 3], Context)
