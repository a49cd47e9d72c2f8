"""redis-py, blocking interface, RESP2 and RESP3."""

import os
import threading

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from harness import address, case, run, until

HOST, PORT = address()
# Set where the connection is to be encrypted.
CA = os.environ.get("HEATSINK_TEST_CA")
TLS = {"ssl": True, "ssl_ca_certs": CA} if CA else {}
POOL_TLS = {"connection_class": redis.SSLConnection, "ssl_ca_certs": CA} if CA else {}
FUNCTIONS = """#!lua name=clientlib
redis.register_function('client_echo', function(keys, args) return {keys[1], args[1]} end)
redis.register_function{
  function_name='client_read', callback=function(keys) return redis.call('GET', keys[1]) end,
  flags={'no-writes'}}
"""


class Context:
    """Makes clients of one protocol version; each case starts with an empty server."""

    def __init__(self, protocol):
        self.protocol = protocol
        self.redis = self.client()
        self.redis.flushall()
        self.redis.function_flush()

    def client(self, **options):
        return redis.Redis(
            host=HOST, port=PORT, protocol=self.protocol, socket_timeout=30, **TLS, **options
        )

    def await_blocked(self, count=1):
        until(
            lambda: self.redis.info("clients")["blocked_clients"] >= count,
            f"{count} blocked clients",
        )


def in_thread(function):
    """Starts a function; the returned one waits for its result."""
    result = {}

    def body():
        try:
            result["value"] = function()
        except Exception as error:  # noqa: BLE001 - handed to the waiter
            result["error"] = error

    thread = threading.Thread(target=body, daemon=True)
    thread.start()

    def join():
        thread.join(30)
        assert not thread.is_alive(), "the call never returned"
        if "error" in result:
            raise result["error"]
        return result["value"]

    return join


@case
def strings(context):
    r = context.redis
    assert r.set("s", "one") is True
    assert r.get("s") == b"one"
    assert r.set("s", "two", nx=True) is None
    assert r.set("s", "two", xx=True, get=True) == b"one"
    assert r.append("s", "!") == 4
    assert r.getrange("s", 1, 2) == b"wo"
    assert r.incrby("n", 41) == 41
    assert r.incr("n") == 42
    assert float(r.incrbyfloat("f", 1.5)) == 1.5
    assert r.mset({"a": 1, "b": 2}) is True
    assert r.mget("a", "b", "none") == [b"1", b"2", None]
    assert r.getdel("a") == b"1"
    assert r.setbit("bits", 7, 1) == 0
    assert r.bitcount("bits") == 1
    assert r.bitfield("bits").set("u8", 0, 255).get("u8", 0).execute() == [1, 255]
    assert r.pfadd("hll", *range(100)) == 1
    assert 95 <= r.pfcount("hll") <= 105


@case
def keys_and_expiry(context):
    r = context.redis
    r.set("k", "v", ex=1000)
    assert 990 < r.ttl("k") <= 1000
    assert r.persist("k") and r.ttl("k") == -1
    assert r.ttl("none") == -2
    assert r.rename("k", "k2") and r.exists("k", "k2") == 1
    assert r.type("k2") == b"string"
    assert r.copy("k2", "k3") and r.object("encoding", "k3") == b"embstr"
    r.restore("k4", 0, r.dump("k3"))
    assert r.get("k4") == b"v"
    for i in range(500):
        r.set(f"scan:{i}", i)
    assert len(set(r.scan_iter("scan:*", count=50))) == 500
    assert r.unlink(*[f"scan:{i}" for i in range(500)]) == 500
    r.set("gone", "v", px=1)
    until(lambda: r.get("gone") is None, "the key expired")


@case
def hashes_lists_sets(context):
    r = context.redis
    assert r.hset("h", mapping={"a": 1, "b": 2}) == 2
    assert r.hgetall("h") == {b"a": b"1", b"b": b"2"}
    assert r.hincrby("h", "a", 4) == 5
    assert r.hmget("h", "a", "x") == [b"5", None]
    assert dict(r.hscan_iter("h")) == {b"a": b"5", b"b": b"2"}
    assert r.rpush("l", "a", "b", "c", "a") == 4
    assert r.lpos("l", "a", count=0) == [0, 3]
    assert r.lrange("l", 0, -1) == [b"a", b"b", b"c", b"a"]
    assert r.lmove("l", "l2", "LEFT", "RIGHT") == b"a"
    assert r.lmpop(2, "none", "l", direction="LEFT", count=2) == [b"l", [b"b", b"c"]]
    assert r.sadd("s1", "a", "b", "c") == 3
    assert r.sadd("s2", "b", "c", "d") == 3
    assert r.sinter("s1", "s2") == {b"b", b"c"}
    assert r.smismember("s1", ["a", "z"]) == [1, 0]
    assert r.sintercard(2, ["s1", "s2"]) == 2
    assert r.sort("s1", alpha=True, desc=True) == [b"c", b"b", b"a"]


@case
def sorted_sets_and_geo(context):
    r = context.redis
    assert r.zadd("z", {"a": 1, "b": 2.5, "c": 3}) == 3
    assert [tuple(pair) for pair in r.zrange("z", 0, -1, withscores=True)] == [
        (b"a", 1.0),
        (b"b", 2.5),
        (b"c", 3.0),
    ]
    assert r.zscore("z", "b") == 2.5
    assert r.zincrby("z", 2, "a") == 3.0
    assert r.zrangebyscore("z", "(2.5", "+inf") == [b"a", b"c"]
    assert r.zrank("z", "c") == 2
    assert r.zmscore("z", ["a", "x"]) == [3.0, None]
    popped = r.zpopmin("z")
    assert popped in ([(b"b", 2.5)], [b"b", 2.5]), popped
    assert r.geoadd("g", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania")) == 2
    assert abs(r.geodist("g", "Palermo", "Catania", unit="km") - 166.2742) < 0.01
    found = r.geosearch("g", longitude=15, latitude=37, radius=100, unit="km")
    assert found == [b"Catania"]


@case
def streams(context):
    r = context.redis
    first = r.xadd("x", {"f": "1"}, id="1-1")
    assert first == b"1-1"
    assert r.xadd("x", {"f": "2"}).count(b"-") == 1
    assert r.xlen("x") == 2
    assert r.xrange("x", count=1) == [(b"1-1", {b"f": b"1"})]
    assert r.xgroup_create("x", "g", id="0")
    got = r.xreadgroup("g", "me", {"x": ">"}, count=10)
    entries = got[b"x"][0] if isinstance(got, dict) else got[0][1]
    assert len(entries) == 2 and entries[0][0] == b"1-1"
    assert r.xpending("x", "g")["pending"] == 2
    assert r.xack("x", "g", "1-1") == 1
    assert r.xinfo_stream("x")["length"] == 2
    assert r.xtrim("x", maxlen=1, approximate=False) == 1


@case
def transactions(context):
    r = context.redis
    with r.pipeline(transaction=True) as pipe:
        pipe.set("a", 1).incr("a").get("a")
        assert pipe.execute() == [True, 2, b"2"]
    with r.pipeline(transaction=True) as pipe:
        pipe.set("a", "text").incr("a").get("a")
        replies = pipe.execute(raise_on_error=False)
        assert replies[0] is True and replies[2] == b"text"
        assert isinstance(replies[1], redis.ResponseError)
    with r.pipeline(transaction=True) as pipe:
        pipe.set("a", "kept").execute_command("NO-SUCH-COMMAND")
        try:
            pipe.execute()
            raise AssertionError("a transaction with an unknown command ran")
        except redis.ResponseError as error:
            assert "unknown command" in str(error), error
    assert r.get("a") == b"text"


@case
def watch_conflict(context):
    r, other = context.redis, context.client()
    r.set("w", 1)
    with r.pipeline() as pipe:
        pipe.watch("w")
        assert pipe.get("w") == b"1"
        other.set("w", 2)
        pipe.multi()
        pipe.set("w", 3)
        try:
            pipe.execute()
            raise AssertionError("the conflict went unnoticed")
        except redis.WatchError:
            pass
    assert r.get("w") == b"2"

    conflicts = []

    def increment(pipe):
        value = int(pipe.get("w"))
        if not conflicts:
            conflicts.append(other.set("w", 10))
        pipe.multi()
        pipe.set("w", value + 1)

    r.transaction(increment, "w")
    assert r.get("w") == b"11"
    with r.pipeline() as pipe:
        pipe.watch("w")
        pipe.unwatch()
        other.set("w", 5)
        pipe.multi()
        assert pipe.get("w").execute() == [b"5"]


@case
def concurrent_transactions(context):
    """Optimistic increments by many threads lose nothing."""
    context.redis.set("w", 0)

    def worker():
        client = context.client()
        for _ in range(20):

            def add(pipe):
                value = int(pipe.get("w"))
                pipe.multi()
                pipe.set("w", value + 1)

            client.transaction(add, "w")

    for join in [in_thread(worker) for _ in range(5)]:
        join()
    assert context.redis.get("w") == b"100"


@case
def scripts(context):
    r = context.redis
    assert r.eval("return {KEYS[1], ARGV[1], 7}", 1, "k", "v") == [b"k", b"v", 7]
    script = r.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    assert script(keys=["n"], args=[5]) == 5
    assert script(keys=["n"], args=[5]) == 10
    digest = r.script_load("return 'loaded'")
    assert r.script_exists(digest, "0" * 40) == [True, False]
    assert r.evalsha(digest, 0) == b"loaded"
    r.script_flush()
    try:
        r.evalsha(digest, 0)
        raise AssertionError("the script outlived SCRIPT FLUSH")
    except redis.exceptions.NoScriptError:
        pass
    try:
        r.eval("return redis.error_reply('MINE it failed')", 0)
        raise AssertionError("no error")
    except redis.ResponseError as error:
        assert "it failed" in str(error)


@case
def functions(context):
    r = context.redis
    assert r.function_load(FUNCTIONS) in ("clientlib", b"clientlib")
    assert r.fcall("client_echo", 1, "k", "v") == [b"k", b"v"]
    r.set("k", "read")
    assert r.fcall_ro("client_read", 1, "k") == b"read"
    assert len(r.function_list()) == 1
    assert r.function_delete("clientlib")
    try:
        r.fcall("client_echo", 1, "k", "v")
        raise AssertionError("the function outlived its library")
    except redis.ResponseError:
        pass


def next_message(pubsub, kind):
    while True:
        message = pubsub.get_message(timeout=10)
        assert message is not None, f"no {kind} within the bound"
        if message["type"] == kind:
            return message


@case
def publish_subscribe(context):
    r = context.redis
    subscriber = context.client().pubsub()
    subscriber.subscribe("news", "other")
    subscriber.psubscribe("n*")
    next_message(subscriber, "psubscribe")
    assert r.publish("news", b"\x00\xff") == 2
    message = next_message(subscriber, "message")
    assert message["channel"] == b"news" and message["data"] == b"\x00\xff"
    message = next_message(subscriber, "pmessage")
    assert message["pattern"] == b"n*" and message["channel"] == b"news"
    assert sorted(r.pubsub_channels()) == [b"news", b"other"]
    assert r.pubsub_numpat() == 1
    subscriber.ping("here")
    assert next_message(subscriber, "pong")["data"] == b"here"
    subscriber.unsubscribe("news")
    subscriber.punsubscribe()
    next_message(subscriber, "punsubscribe")
    assert r.publish("news", "nobody") == 0
    assert r.publish("other", "still") == 1
    assert next_message(subscriber, "message")["data"] == b"still"
    subscriber.close()
    until(lambda: r.pubsub_channels() == [], "the subscriber left")


@case
def sharded_publish_subscribe(context):
    r = context.redis
    subscriber = context.client().pubsub()
    subscriber.ssubscribe("shard")
    next_message(subscriber, "ssubscribe")
    assert r.spublish("shard", "hello") == 1
    message = next_message(subscriber, "smessage")
    assert message["channel"] == b"shard" and message["data"] == b"hello"
    subscriber.sunsubscribe()
    next_message(subscriber, "sunsubscribe")
    subscriber.close()


@case
def many_messages_keep_their_order(context):
    subscriber = context.client().pubsub()
    subscriber.subscribe("flood")
    next_message(subscriber, "subscribe")
    with context.redis.pipeline(transaction=False) as pipe:
        for i in range(5000):
            pipe.publish("flood", i)
        assert set(pipe.execute()) == {1}
    for i in range(5000):
        assert int(next_message(subscriber, "message")["data"]) == i
    subscriber.close()


@case
def blocking(context):
    r = context.redis
    join = in_thread(lambda: context.client().blpop(["q1", "q2"], timeout=20))
    context.await_blocked()
    r.rpush("q2", "woken")
    assert tuple(join()) == (b"q2", b"woken")
    assert context.client().brpop("empty", timeout=0.05) is None
    join = in_thread(lambda: context.client().bzpopmin("bz", timeout=20))
    context.await_blocked()
    r.zadd("bz", {"m": 1})
    key, member, score = join()
    assert (key, member, float(score)) == (b"bz", b"m", 1.0)
    join = in_thread(lambda: context.client().xread({"bx": "$"}, block=20000))
    context.await_blocked()
    r.xadd("bx", {"f": "v"}, id="5-5")
    got = join()
    entries = got[b"bx"][0] if isinstance(got, dict) else got[0][1]
    assert entries == [(b"5-5", {b"f": b"v"})]
    assert not context.client().xread({"bx": "$"}, block=20)
    join = in_thread(lambda: context.client().blmove("src", "dst", timeout=20))
    context.await_blocked()
    r.rpush("src", "moved")
    assert join() == b"moved" and r.lrange("dst", 0, -1) == [b"moved"]


@case
def blocked_clients_do_not_hold_up_others(context):
    joins = [
        in_thread(lambda i=i: context.client().blpop(f"wait:{i}", timeout=20)) for i in range(20)
    ]
    context.await_blocked(20)
    for i in range(1000):
        context.redis.set("free", i)
    for i in range(20):
        context.redis.rpush(f"wait:{i}", i)
    for i, join in enumerate(joins):
        assert tuple(join()) == (f"wait:{i}".encode(), str(i).encode())


@case
def long_pipelines(context):
    pipe = context.redis.pipeline(transaction=False)
    for i in range(10_000):
        pipe.set(f"p:{i}", i)
    assert pipe.execute() == [True] * 10_000
    for i in range(10_000):
        pipe.get(f"p:{i}")
    assert pipe.execute() == [str(i).encode() for i in range(10_000)]
    with context.redis.pipeline(transaction=True) as transaction:
        for _ in range(10_000):
            transaction.incr("counter")
        assert transaction.execute() == list(range(1, 10_001))


@case
def bytes_of_every_kind(context):
    r = context.redis
    every = bytes(range(256))
    for key in (every, b"", b"\r\n", b"*1\r\n$4\r\nPING\r\n", "\u00fc\u4e2d".encode()):
        assert r.set(key, every + key)
        assert r.get(key) == every + key
    assert r.hset(b"h\x00", every, every) == 1
    assert r.hgetall(b"h\x00") == {every: every}


@case
def big_values(context):
    r = context.redis
    value = os.urandom(8 << 20)
    assert r.set("big", value)
    assert r.get("big") == value
    assert r.strlen("big") == len(value)
    with r.pipeline(transaction=True) as pipe:
        pipe.set("big2", value).get("big2").ping()
        assert pipe.execute() == [True, value, True]
    assert r.rpush("bl", *[value[:1000]] * 5000) == 5000
    assert r.lrange("bl", 0, -1) == [value[:1000]] * 5000


@case
def databases(context):
    zero, one = context.redis, context.client(db=1)
    zero.set("k", "zero")
    one.set("k", "one")
    assert (zero.get("k"), one.get("k")) == (b"zero", b"one")
    single = context.client(single_connection_client=True)
    assert single.select(1) and single.get("k") == b"one"
    assert single.select(0) and single.get("k") == b"zero"
    assert zero.move("k", 2) and zero.get("k") is None
    assert one.swapdb(1, 2) and one.get("k") == b"zero"
    assert one.dbsize() == 1
    try:
        single.select(9999)
        raise AssertionError("there is no such database")
    except redis.ResponseError:
        pass
    assert single.get("k") is None, "a SELECT that failed changes nothing"


@case
def client_commands(context):
    client = context.client(single_connection_client=True, client_name="first")
    assert client.client_getname() == b"first" or client.client_getname() == "first"
    assert client.client_setname("second")
    assert client.client_getname() in (b"second", "second")
    number = client.client_id()
    assert number == client.client_id() and number > 0
    assert number != context.client().client_id()
    assert any(entry["name"] == "second" for entry in client.client_list())
    assert int(client.client_info()["id"]) == number
    assert client.client_no_evict("ON") in (True, b"OK", "OK")
    assert client.echo("same") == b"same"
    assert client.ping()
    assert client.execute_command("RESET") in (b"RESET", "RESET")


@case
def a_client_can_be_killed(context):
    victim = context.client(single_connection_client=True)
    number = victim.client_id()
    assert context.redis.client_kill_filter(_id=number) == 1
    # The connection is gone; the client opens another one by itself.
    until(lambda: reconnected(victim, number), "the killed client came back")


def reconnected(victim, number):
    try:
        return victim.client_id() != number
    except redis.ConnectionError:
        return False


@case
def access_control(context):
    r = context.redis
    r.acl_setuser(
        "worker",
        enabled=True,
        passwords=["+pass word"],
        keys=["mine:*"],
        channels=["*"],
        categories=["+@all", "-@dangerous"],
        reset=True,
    )
    try:
        worker = context.client(username="worker", password="pass word")
        assert worker.set("mine:1", "v") and worker.get("mine:1") == b"v"
        assert worker.acl_whoami() in (b"worker", "worker")
        for forbidden in (lambda: worker.get("yours"), lambda: worker.flushall()):
            try:
                forbidden()
                raise AssertionError("permitted")
            except redis.exceptions.NoPermissionError:
                pass
        try:
            # The client tries again when a password is refused, and would wait for seconds before.
            retry = Retry(NoBackoff(), 3)
            context.client(username="worker", password="wrong", retry=retry).ping()
            raise AssertionError("let in with a wrong password")
        except redis.AuthenticationError:
            pass
        assert context.redis.acl_whoami() in (b"default", "default")
        with worker.pipeline(transaction=True) as pipe:
            pipe.set("mine:2", 1).incr("mine:2")
            assert pipe.execute() == [True, 2]
        join = in_thread(
            lambda: context.client(username="worker", password="pass word").blpop("mine:q", 20)
        )
        context.await_blocked()
        r.rpush("mine:q", "x")
        assert tuple(join()) == (b"mine:q", b"x")
        single = context.client(single_connection_client=True)
        assert single.execute_command("AUTH", "worker", "pass word") in (True, b"OK", "OK")
        assert single.acl_whoami() in (b"worker", "worker")
    finally:
        r.acl_deluser("worker")


@case
def pool_used_by_many_threads(context):
    pool = redis.BlockingConnectionPool(
        host=HOST,
        port=PORT,
        protocol=context.protocol,
        max_connections=8,
        timeout=30,
        **POOL_TLS,
    )
    client = redis.Redis(connection_pool=pool)

    def worker(i):
        for j in range(200):
            key = f"pool:{i}:{j}"
            assert client.set(key, f"{i}-{j}")
            assert client.get(key) == f"{i}-{j}".encode()
            client.incr("total")

    for join in [in_thread(lambda i=i: worker(i)) for i in range(16)]:
        join()
    assert client.get("total") == b"3200"
    client.connection_pool.disconnect()


@case
def invalidation_messages(context):
    if context.protocol != 3:
        return
    pool = context.client().connection_pool
    connection = pool.get_connection()
    pushes = []
    connection._parser.set_invalidation_push_handler(pushes.append)
    connection.send_command("CLIENT", "TRACKING", "ON")
    assert connection.read_response() in (b"OK", "OK")
    context.redis.set("tracked", 1)
    connection.send_command("GET", "tracked")
    assert connection.read_response() == b"1"
    context.redis.set("tracked", 2)
    while not pushes:
        connection.read_response(push_request=True)
    assert pushes == [[b"invalidate", [b"tracked"]]], pushes
    connection.send_command("CLIENT", "TRACKING", "OFF")
    assert connection.read_response() in (b"OK", "OK")
    pool.release(connection)


@case
def server_commands(context):
    r = context.redis
    assert "redis_version" in r.info("server")
    assert "maxmemory" in r.config_get("maxmem*")
    assert r.command_count() > 200
    assert r.command_getkeys("MSET", "a", "1", "b", "2") in (["a", "b"], [b"a", b"b"])
    assert r.dbsize() == 0
    assert isinstance(r.time()[0], int)
    assert r.wait(0, 10) == 0
    try:
        r.lpush("n", "x")
        r.incr("n")
        raise AssertionError("INCR of a list")
    except redis.ResponseError as error:
        assert "wrong kind of value" in str(error)


@case
def monitor(context):
    with context.client().monitor() as watcher:
        context.redis.set("watched", "v")
        while True:
            if watcher.next_command()["command"] == "SET watched v":
                break


run([2, 3], Context)
