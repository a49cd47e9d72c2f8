"""redis-py, asyncio interface, RESP2 and RESP3."""

import asyncio
import contextlib
import os

import redis.asyncio as redis
from redis import ResponseError, WatchError
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError
from harness import address, case, run, until_async

HOST, PORT = address()


class Context:
    """Makes clients of one protocol version."""

    def __init__(self, protocol):
        self.protocol = protocol

    def client(self, **options):
        return redis.Redis(
            host=HOST, port=PORT, protocol=self.protocol, socket_timeout=30, **options
        )

    @contextlib.asynccontextmanager
    async def empty_server(self):
        async with self.client() as client:
            await client.flushall()
            yield client


async def await_blocked(client, count=1):
    async def blocked():
        return (await client.info("clients"))["blocked_clients"] >= count

    await until_async(blocked, f"{count} blocked clients")


@case
async def every_type(context):
    async with context.empty_server() as r:
        assert await r.set("s", "v") and await r.get("s") == b"v"
        assert await r.incr("n") == 1
        assert await r.hset("h", mapping={"a": 1}) == 1
        assert await r.hgetall("h") == {b"a": b"1"}
        assert await r.rpush("l", 1, 2, 3) == 3
        assert await r.lrange("l", 0, -1) == [b"1", b"2", b"3"]
        assert await r.sadd("set", "a", "b") == 2
        assert await r.smembers("set") == {b"a", b"b"}
        assert await r.zadd("z", {"a": 1.5}) == 1
        assert await r.zscore("z", "a") == 1.5
        assert await r.xadd("x", {"f": "v"}, id="1-1") == b"1-1"
        assert await r.xrange("x") == [(b"1-1", {b"f": b"v"})]
        assert await r.pfadd("p", 1, 2) == 1 and await r.pfcount("p") == 2
        assert await r.geoadd("g", (1.0, 2.0, "here")) == 1
        assert await r.setbit("b", 3, 1) == 0
        every = bytes(range(256))
        assert await r.set(every, every) and await r.get(every) == every


@case
async def transactions(context):
    async with context.empty_server() as r, context.client() as other:
        async with r.pipeline(transaction=True) as pipe:
            assert await pipe.set("a", 1).incr("a").execute() == [True, 2]
        async with r.pipeline(transaction=True) as pipe:
            await pipe.watch("a")
            await other.set("a", 7)
            pipe.multi()
            pipe.set("a", 8)
            try:
                await pipe.execute()
                raise AssertionError("the conflict went unnoticed")
            except WatchError:
                pass
        assert await r.get("a") == b"7"


@case
async def scripts_and_functions(context):
    async with context.empty_server() as r:
        add = r.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
        assert await add(keys=["n"], args=[3]) == 3
        await r.script_flush()
        assert await add(keys=["n"], args=[3]) == 6
        library = (
            "#!lua name=aiolib\n"
            "redis.register_function('aio_echo', function(keys, args) return args[1] end)"
        )
        await r.function_load(library, replace=True)
        assert await r.fcall("aio_echo", 0, "back") == b"back"
        await r.function_delete("aiolib")


async def next_message(pubsub, kind):
    while True:
        message = await pubsub.get_message(timeout=10)
        assert message is not None, f"no {kind} within the bound"
        if message["type"] == kind:
            return message


@case
async def publish_subscribe(context):
    async with context.empty_server() as r, context.client().pubsub() as subscriber:
        await subscriber.subscribe("one")
        await subscriber.psubscribe("t*")
        await next_message(subscriber, "psubscribe")
        await r.publish("one", "1")
        await r.publish("two", "2")
        assert (await next_message(subscriber, "message"))["data"] == b"1"
        assert (await next_message(subscriber, "pmessage"))["channel"] == b"two"
        await subscriber.unsubscribe()
        await next_message(subscriber, "unsubscribe")
        await r.publish("two", "3")
        assert (await next_message(subscriber, "pmessage"))["data"] == b"3"


@case
async def blocking(context):
    async with context.empty_server() as r, context.client() as waiter:
        pending = asyncio.ensure_future(waiter.blpop("q", timeout=20))
        await await_blocked(r)
        await r.rpush("q", "woken")
        assert tuple(await pending) == (b"q", b"woken")
        assert await waiter.brpop("q", timeout=0.05) is None
        pending = asyncio.ensure_future(waiter.xread({"x": "$"}, block=20000))
        await await_blocked(r)
        await r.xadd("x", {"f": "v"}, id="9-9")
        assert b"9-9" in repr(await pending).encode()
        pending = asyncio.ensure_future(waiter.bzpopmin("z", timeout=20))
        await await_blocked(r)
        await r.zadd("z", {"m": 2})
        assert b"m" in (await pending)


@case
async def a_cancelled_blocking_call_takes_nothing(context):
    """The element must reach the next consumer, not the connection that gave up."""
    async with context.empty_server() as r:
        waiter = context.client()
        pending = asyncio.ensure_future(waiter.blpop("q", timeout=20))
        await await_blocked(r)
        pending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pending
        await waiter.aclose()

        async def unblocked():
            return (await r.info("clients"))["blocked_clients"] == 0

        await until_async(unblocked, "the server noticed that the waiter left")
        await r.rpush("q", "kept")
        assert await r.lpop("q") == b"kept"


@case
async def long_pipelines_and_big_values(context):
    async with context.empty_server() as r:
        pipe = r.pipeline(transaction=False)
        for i in range(10_000):
            pipe.incr("n")
        assert await pipe.execute() == list(range(1, 10_001))
        value = os.urandom(8 << 20)
        assert await r.set("big", value)
        assert await r.get("big") == value


@case
async def many_tasks_on_one_pool(context):
    async with context.empty_server() as r:
        pool = redis.BlockingConnectionPool(
            host=HOST, port=PORT, protocol=context.protocol, max_connections=10, timeout=30
        )
        client = redis.Redis(connection_pool=pool)

        async def worker(i):
            for j in range(50):
                key = f"{i}:{j}"
                await client.set(key, key)
                assert await client.get(key) == key.encode()

        await asyncio.gather(*[worker(i) for i in range(40)])
        assert await r.dbsize() == 2000
        await client.aclose()
        await pool.disconnect()


@case
async def users_and_databases(context):
    async with context.empty_server() as r:
        await r.acl_setuser(
            "aio", enabled=True, passwords=["+secret"], keys=["mine:*"], commands=["+get", "+set"]
        )
        try:
            async with context.client(username="aio", password="secret") as worker:
                assert await worker.set("mine:k", "v")
                try:
                    await worker.set("yours", "v")
                    raise AssertionError("permitted")
                except NoPermissionError:
                    pass
            try:
                # The client tries again when a password is refused, and would wait for seconds before.
                retry = Retry(NoBackoff(), 3)
                async with context.client(username="aio", password="wrong", retry=retry) as worker:
                    await worker.ping()
                raise AssertionError("let in with a wrong password")
            except AuthenticationError:
                pass
        finally:
            await r.acl_deluser("aio")
        async with context.client(db=3) as three:
            await three.set("k", "three")
            assert await r.get("k") is None
            assert await three.get("k") == b"three"


@case
async def names_and_errors(context):
    async with context.empty_server() as r, context.client(client_name="aio") as named:
        assert await named.client_getname() in (b"aio", "aio")
        assert await named.client_id() != await r.client_id()
        await r.set("s", "text")
        try:
            await r.incr("s")
            raise AssertionError("INCR of a text")
        except ResponseError as error:
            assert "not an integer" in str(error)


run([2, 3], Context)
