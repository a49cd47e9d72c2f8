'use strict';
// ioredis, RESP2 and RESP3.

const assert = require('node:assert/strict');
const { randomBytes } = require('node:crypto');
const { Redis } = require('ioredis');
const { Inbox, address, run, test, until } = require('./harness.js');

const { host, port } = address();

async function open(protocol) {
  const clients = [];
  const context = {
    protocol,
    client(options = {}) {
      const client = new Redis({ host, port, protocol, ...options });
      client.on('error', () => {});
      clients.push(client);
      return client;
    },
    async close() {
      for (const client of clients) client.disconnect();
    },
    async awaitBlocked(count = 1) {
      await until(async () => {
        const info = await context.redis.info('clients');
        return Number(/blocked_clients:(\d+)/.exec(info)[1]) >= count;
      }, `${count} blocked clients`);
    },
  };
  context.redis = context.client();
  await context.redis.flushall();
  return context;
}

test('every type', async ({ redis }) => {
  assert.equal(await redis.set('s', 'v', 'EX', 1000), 'OK');
  assert.equal(await redis.get('s'), 'v');
  assert.equal(await redis.incrby('n', 5), 5);
  assert.deepEqual(await redis.mget('s', 'none'), ['v', null]);
  assert.equal(await redis.setbit('b', 3, 1), 0);
  assert.equal(await redis.hset('h', { a: 1, b: 2 }), 2);
  assert.deepEqual({ ...(await redis.hgetall('h')) }, { a: '1', b: '2' });
  assert.equal(await redis.rpush('l', 'a', 'b', 'c'), 3);
  assert.deepEqual(await redis.lrange('l', 0, -1), ['a', 'b', 'c']);
  assert.equal(await redis.sadd('set', 'a', 'b'), 2);
  assert.deepEqual((await redis.smembers('set')).sort(), ['a', 'b']);
  assert.equal(await redis.zadd('z', 1, 'a', 2.5, 'b'), 2);
  assert.equal(Number(await redis.zscore('z', 'b')), 2.5);
  assert.equal(await redis.xadd('x', '1-1', 'f', 'v'), '1-1');
  assert.deepEqual(await redis.xrange('x', '-', '+'), [['1-1', ['f', 'v']]]);
  assert.equal(await redis.xgroup('CREATE', 'x', 'g', '0'), 'OK');
  assert.match(
    JSON.stringify(await redis.xreadgroup('GROUP', 'g', 'me', 'STREAMS', 'x', '>')),
    /"1-1"/,
  );
  assert.equal(await redis.xack('x', 'g', '1-1'), 1);
  assert.equal(await redis.pfadd('hll', 'a', 'b'), 1);
  assert.equal(await redis.pfcount('hll'), 2);
  assert.equal(await redis.geoadd('g', 13.36, 38.11, 'p'), 1);
  const found = new Set();
  for await (const keys of redis.scanStream({ count: 5 })) keys.forEach((key) => found.add(key));
  assert.equal(found.size, 10);
  await assert.rejects(redis.incr('s'), /not an integer/);
  await assert.rejects(redis.llen('s'), /WRONGTYPE/);
});

test('transactions', async ({ redis, client }) => {
  assert.deepEqual(await redis.multi().set('a', 1).incr('a').get('a').exec(), [
    [null, 'OK'],
    [null, 2],
    [null, '2'],
  ]);
  const mixed = await redis.multi().set('a', 'text').incr('a').exec();
  assert.match(String(mixed[1][0]), /not an integer/);
  await assert.rejects(redis.multi().set('a', 'lost').call('NO-SUCH').exec(), /EXECABORT/);
  assert.equal(await redis.get('a'), 'text');
  const other = client();
  await redis.watch('a');
  await other.set('a', 'changed');
  assert.equal(await redis.multi().set('a', 'lost').exec(), null);
  assert.equal(await redis.get('a'), 'changed');
  await redis.multi({ pipeline: false });
  assert.equal(await redis.set('b', '1'), 'QUEUED');
  assert.equal(await redis.discard(), 'OK');
  assert.equal(await redis.get('b'), null);
});

test('scripts and functions', async ({ redis }) => {
  assert.deepEqual(await redis.eval('return {KEYS[1], ARGV[1], 7}', 1, 'k', 'v'), ['k', 'v', 7]);
  redis.defineCommand('addTo', {
    numberOfKeys: 1,
    lua: "return redis.call('INCRBY', KEYS[1], ARGV[1])",
  });
  assert.equal(await redis.addTo('n', 5), 5);
  await redis.script('FLUSH');
  assert.equal(await redis.addTo('n', 5), 10);
  const library =
    "#!lua name=iolib\nredis.register_function('io_echo', function(k, a) return a[1] end)";
  assert.equal(await redis.function('LOAD', 'REPLACE', library), 'iolib');
  assert.equal(await redis.fcall('io_echo', 0, 'back'), 'back');
  assert.equal(await redis.function('DELETE', 'iolib'), 'OK');
});

test('publish and subscribe', async ({ redis, client }) => {
  const subscriber = client();
  const inbox = new Inbox();
  subscriber.on('message', (channel, message) => inbox.push(['m', channel, message]));
  subscriber.on('pmessage', (_, channel, message) => inbox.push(['p', channel, message]));
  subscriber.on('smessage', (channel, message) => inbox.push(['s', channel, message]));
  assert.equal(await subscriber.subscribe('news'), 1);
  assert.equal(await subscriber.psubscribe('n*'), 2);
  await subscriber.ssubscribe('shard');
  assert.equal(await redis.publish('news', 'hello'), 2);
  assert.deepEqual(await inbox.take('message'), ['m', 'news', 'hello']);
  assert.deepEqual(await inbox.take('pmessage'), ['p', 'news', 'hello']);
  assert.equal(await redis.spublish('shard', 'x'), 1);
  assert.deepEqual(await inbox.take('smessage'), ['s', 'shard', 'x']);
  await subscriber.unsubscribe('news');
  await subscriber.punsubscribe('n*');
  await subscriber.sunsubscribe('shard');
  assert.equal(await redis.publish('news', 'nobody'), 0);
  assert.equal(await subscriber.get('none'), null);
});

test('blocking', async ({ redis, client, awaitBlocked }) => {
  const waiter = client();
  let pending = waiter.blpop('q1', 'q2', 20);
  await awaitBlocked();
  await redis.rpush('q2', 'woken');
  assert.deepEqual(await pending, ['q2', 'woken']);
  assert.equal(await waiter.brpop('q1', 0.05), null);
  pending = waiter.bzpopmin('z', 20);
  await awaitBlocked();
  await redis.zadd('z', 1, 'm');
  assert.equal((await pending)[1], 'm');
  pending = waiter.xread('BLOCK', 20000, 'STREAMS', 'x', '$');
  await awaitBlocked();
  await redis.xadd('x', '7-7', 'f', 'v');
  assert.match(JSON.stringify(await pending), /"7-7"/);
});

test('ten thousand commands at once', async ({ redis }) => {
  const pipeline = redis.pipeline();
  for (let i = 0; i < 10000; i += 1) pipeline.incr('n');
  const replies = await pipeline.exec();
  replies.forEach(([error, number], i) => {
    assert.equal(error, null);
    assert.equal(number, i + 1);
  });
  const single = [];
  for (let i = 0; i < 10000; i += 1) single.push(redis.incr('m'));
  (await Promise.all(single)).forEach((number, i) => assert.equal(number, i + 1));
});

test('automatic pipelining', async ({ redis, client }) => {
  const automatic = client({ enableAutoPipelining: true });
  await Promise.all(Array.from({ length: 1000 }, (_, i) => automatic.set(`a:${i}`, i)));
  const values = await Promise.all(Array.from({ length: 1000 }, (_, i) => automatic.get(`a:${i}`)));
  values.forEach((value, i) => assert.equal(value, `${i}`));
  assert.equal(await redis.dbsize(), 1000);
});

test('bytes and big values', async ({ redis }) => {
  const every = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  for (const key of [every, Buffer.from('\r\n'), Buffer.alloc(0)]) {
    await redis.set(key, every);
    assert.ok(every.equals(await redis.getBuffer(key)));
  }
  const big = randomBytes(8 << 20);
  await redis.set('big', big);
  assert.ok(big.equals(await redis.getBuffer('big')));
});

test('databases, names, users', async ({ redis, client }) => {
  const one = client({ db: 1, connectionName: 'named' });
  await one.set('k', 'one');
  assert.equal(await redis.get('k'), null);
  assert.equal(await one.get('k'), 'one');
  assert.equal(await redis.select(1), 'OK');
  assert.equal(await redis.get('k'), 'one');
  assert.equal(await one.client('GETNAME'), 'named');
  assert.equal(await one.client('SETNAME', 'renamed'), 'OK');
  assert.equal(await one.client('GETNAME'), 'renamed');
  assert.equal(await one.client('ID'), await one.client('ID'));
  assert.notEqual(await one.client('ID'), await redis.client('ID'));
  assert.match(await redis.client('LIST'), /name=renamed/);
  await redis.acl('SETUSER', 'io', 'reset', 'on', '>secret', '~mine:*', '+@all', '-@dangerous');
  const worker = client({ username: 'io', password: 'secret', enableReadyCheck: false });
  assert.equal(await worker.acl('WHOAMI'), 'io');
  assert.equal(await worker.set('mine:1', 'v'), 'OK');
  await assert.rejects(worker.get('yours'), /NOPERM/);
  await assert.rejects(worker.flushall(), /NOPERM/);
  const plain = client();
  await assert.rejects(plain.call('AUTH', 'io', 'wrong'), /WRONGPASS/);
  assert.equal(await plain.call('AUTH', 'io', 'secret'), 'OK');
  assert.equal(await plain.acl('WHOAMI'), 'io');
  assert.equal(await redis.acl('DELUSER', 'io'), 1);
});

test('many connections at once', async ({ redis, client }) => {
  const clients = Array.from({ length: 16 }, () => client());
  await Promise.all(
    clients.map(async (one, i) => {
      for (let j = 0; j < 100; j += 1) {
        await one.set(`c:${i}:${j}`, `${i}-${j}`);
        assert.equal(await one.get(`c:${i}:${j}`), `${i}-${j}`);
      }
    }),
  );
  assert.equal(await redis.dbsize(), 1600);
});

test('a killed connection comes back', async ({ redis, client }) => {
  const victim = client();
  const id = await victim.client('ID');
  assert.equal(await redis.client('KILL', 'ID', id), 1);
  await until(async () => (await victim.client('ID').catch(() => id)) !== id, 'it reconnected');
});

test('monitor', async ({ redis }) => {
  // Of a client that is connected: the greeting of another one might be reported in one piece with
  // the reply to MONITOR, which the library does not expect.
  const watcher = await redis.monitor();
  const inbox = new Inbox();
  watcher.on('monitor', (_, args) => inbox.push(args));
  await redis.set('watched', 'v');
  while ((await inbox.take('the SET')).join(' ').toLowerCase() !== 'set watched v');
  watcher.disconnect();
});

run([2, 3], open);
