'use strict';
// node-redis (package `redis`), RESP2 and RESP3.

const assert = require('node:assert/strict');
const { randomBytes } = require('node:crypto');
const { createClient, createClientPool, RESP_TYPES, WatchError } = require('redis');
const { Inbox, address, run, test, until } = require('./harness.js');

const { host, port } = address();

async function open(protocol) {
  const clients = [];
  const context = {
    protocol,
    async client(options = {}) {
      const client = createClient({ RESP: protocol, socket: { host, port }, ...options });
      client.on('error', () => {});
      clients.push(client);
      return client.connect();
    },
    async close() {
      for (const client of clients) if (client.isOpen) client.destroy();
    },
    async awaitBlocked(count = 1) {
      await until(async () => {
        const info = await context.redis.info('clients');
        return Number(/blocked_clients:(\d+)/.exec(info)[1]) >= count;
      }, `${count} blocked clients`);
    },
  };
  context.redis = await context.client();
  await context.redis.flushAll();
  return context;
}

test('every type', async ({ redis }) => {
  assert.equal(await redis.set('s', 'v'), 'OK');
  assert.equal(await redis.get('s'), 'v');
  assert.equal(await redis.incrBy('n', 5), 5);
  assert.deepEqual(await redis.mGet(['s', 'none']), ['v', null]);
  assert.equal(await redis.setBit('b', 3, 1), 0);
  assert.equal(await redis.hSet('h', { a: '1', b: '2' }), 2);
  assert.deepEqual({ ...(await redis.hGetAll('h')) }, { a: '1', b: '2' });
  assert.equal(await redis.rPush('l', ['a', 'b', 'c']), 3);
  assert.deepEqual(await redis.lRange('l', 0, -1), ['a', 'b', 'c']);
  assert.equal(await redis.sAdd('set', ['a', 'b']), 2);
  assert.deepEqual([...(await redis.sMembers('set'))].sort(), ['a', 'b']);
  assert.equal(await redis.zAdd('z', [{ score: 1, value: 'a' }, { score: 2.5, value: 'b' }]), 2);
  assert.deepEqual(await redis.zRangeWithScores('z', 0, -1), [
    { value: 'a', score: 1 },
    { value: 'b', score: 2.5 },
  ]);
  assert.equal(await redis.zScore('z', 'b'), 2.5);
  assert.equal(await redis.xAdd('x', '1-1', { f: 'v' }), '1-1');
  const [entry] = await redis.xRange('x', '-', '+');
  assert.equal(entry.id, '1-1');
  assert.equal(entry.message.f, 'v');
  assert.equal(await redis.xGroupCreate('x', 'g', '0'), 'OK');
  const read = await redis.xReadGroup('g', 'me', { key: 'x', id: '>' });
  assert.equal(read[0].messages[0].id, '1-1');
  assert.equal(await redis.xAck('x', 'g', '1-1'), 1);
  assert.equal(await redis.pfAdd('hll', ['a', 'b']) ? 2 : 0, await redis.pfCount('hll'));
  assert.equal(await redis.geoAdd('g', { longitude: 13.36, latitude: 38.11, member: 'p' }), 1);
  const found = [];
  for await (const keys of redis.scanIterator({ COUNT: 5 })) found.push(...keys);
  assert.equal(new Set(found).size, 10);
  await assert.rejects(redis.incr('s'), /not an integer/);
  await assert.rejects(redis.lLen('s'), /WRONGTYPE/);
});

test('transactions', async ({ redis, client }) => {
  assert.deepEqual(await redis.multi().set('a', '1').incr('a').get('a').exec(), ['OK', 2, '2']);
  await assert.rejects(redis.multi().set('a', '5').addCommand(['NO-SUCH']).exec());
  assert.equal(await redis.get('a'), '2');
  const other = await client();
  await redis.watch('a');
  await other.set('a', 'changed');
  await assert.rejects(redis.multi().set('a', 'lost').exec(), WatchError);
  assert.equal(await redis.get('a'), 'changed');
  await redis.watch('a');
  await redis.unwatch();
  await other.set('a', 'again');
  assert.deepEqual(await redis.multi().get('a').exec(), ['again']);
});

test('scripts and functions', async ({ redis }) => {
  assert.deepEqual(
    await redis.eval('return {KEYS[1], ARGV[1], 7}', { keys: ['k'], arguments: ['v'] }),
    ['k', 'v', 7],
  );
  const sha = await redis.scriptLoad("return redis.call('INCR', KEYS[1])");
  assert.equal(await redis.evalSha(sha, { keys: ['n'] }), 1);
  await redis.scriptFlush();
  await assert.rejects(redis.evalSha(sha, { keys: ['n'] }), /NOSCRIPT/);
  await redis.functionLoad(
    "#!lua name=nodelib\nredis.register_function('node_echo', function(k, a) return a[1] end)",
    { REPLACE: true },
  );
  assert.equal(await redis.fCall('node_echo', { arguments: ['back'] }), 'back');
  assert.equal(await redis.functionDelete('nodelib'), 'OK');
});

test('publish and subscribe', async ({ redis, client }) => {
  const subscriber = await client();
  const inbox = new Inbox();
  await subscriber.subscribe('news', (message, channel) => inbox.push(['m', channel, message]));
  await subscriber.pSubscribe('n*', (message, channel) => inbox.push(['p', channel, message]));
  await subscriber.sSubscribe('shard', (message, channel) => inbox.push(['s', channel, message]));
  assert.equal(await redis.publish('news', 'hello'), 2);
  assert.deepEqual(await inbox.take('message'), ['m', 'news', 'hello']);
  assert.deepEqual(await inbox.take('pmessage'), ['p', 'news', 'hello']);
  assert.equal(await redis.sPublish('shard', 'x'), 1);
  assert.deepEqual(await inbox.take('smessage'), ['s', 'shard', 'x']);
  await subscriber.unsubscribe('news');
  assert.equal(await redis.publish('news', 'again'), 1);
  assert.deepEqual(await inbox.take('pmessage'), ['p', 'news', 'again']);
  await subscriber.pUnsubscribe();
  await subscriber.sUnsubscribe();
  assert.equal(await redis.publish('news', 'nobody'), 0);
  assert.equal(await subscriber.get('none'), null);
});

test('blocking', async ({ redis, client, awaitBlocked }) => {
  const waiter = await client();
  let pending = waiter.blPop(['q1', 'q2'], 20);
  await awaitBlocked();
  await redis.rPush('q2', 'woken');
  assert.deepEqual({ ...(await pending) }, { key: 'q2', element: 'woken' });
  assert.equal(await waiter.brPop('q1', 0.05), null);
  pending = waiter.bzPopMin('z', 20);
  await awaitBlocked();
  await redis.zAdd('z', { score: 1, value: 'm' });
  assert.equal((await pending).value, 'm');
  pending = waiter.xRead({ key: 'x', id: '$' }, { BLOCK: 20000 });
  await awaitBlocked();
  await redis.xAdd('x', '7-7', { f: 'v' });
  assert.equal((await pending)[0].messages[0].id, '7-7');
  assert.equal(await waiter.xRead({ key: 'x', id: '$' }, { BLOCK: 20 }), null);
});

test('ten thousand commands at once', async ({ redis }) => {
  const replies = [];
  for (let i = 0; i < 10000; i += 1) replies.push(redis.incr('n'));
  const numbers = await Promise.all(replies);
  numbers.forEach((number, i) => assert.equal(number, i + 1));
});

test('bytes and big values', async ({ redis }) => {
  const raw = redis.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  const every = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  for (const key of [every, Buffer.from('\r\n'), Buffer.alloc(0)]) {
    await raw.set(key, every);
    assert.ok(every.equals(await raw.get(key)));
  }
  const big = randomBytes(8 << 20);
  await raw.set('big', big);
  assert.ok(big.equals(await raw.get('big')));
});

test('databases, names, users', async ({ redis, client }) => {
  const one = await client({ database: 1, name: 'named' });
  await one.set('k', 'one');
  assert.equal(await redis.get('k'), null);
  assert.equal(await one.get('k'), 'one');
  await redis.select(1);
  assert.equal(await redis.get('k'), 'one');
  assert.equal(await one.clientGetName(), 'named');
  await one.clientSetName('renamed');
  assert.equal(await one.clientGetName(), 'renamed');
  assert.equal(await one.clientId(), await one.clientId());
  assert.notEqual(await one.clientId(), await redis.clientId());
  assert.ok((await redis.clientList()).some((entry) => entry.name === 'renamed'));
  await redis.aclSetUser('node', ['reset', 'on', '>secret', '~mine:*', '+@all', '-@dangerous']);
  const worker = await client({ username: 'node', password: 'secret' });
  assert.equal(await worker.aclWhoAmI(), 'node');
  assert.equal(await worker.set('mine:1', 'v'), 'OK');
  await assert.rejects(worker.get('yours'), /NOPERM/);
  await assert.rejects(worker.flushAll(), /NOPERM/);
  await assert.rejects(
    client({
      username: 'node',
      password: 'wrong',
      socket: { host, port, reconnectStrategy: false },
    }),
    /WRONGPASS/,
  );
  assert.equal(await redis.aclDelUser('node'), 1);
});

test('a pool used by many', async ({ redis, protocol }) => {
  // A busy machine may take longer than the usual three seconds for all that wait at once.
  const limits = { maximum: 8, acquireTimeout: 20000 };
  const pool = createClientPool({ RESP: protocol, socket: { host, port } }, limits);
  pool.on('error', () => {});
  await pool.connect();
  await Promise.all(
    Array.from({ length: 2000 }, async (_, i) => {
      await pool.set(`pool:${i}`, `${i}`);
      assert.equal(await pool.get(`pool:${i}`), `${i}`);
    }),
  );
  assert.equal(await redis.dbSize(), 2000);
  const counted = await pool.execute((client) => client.multi().incr('c').incr('c').exec());
  assert.deepEqual(counted, [1, 2]);
  pool.destroy();
});

test('client-side cache', async ({ redis, client, protocol }) => {
  if (protocol !== 3) return;
  const cached = await client({ clientSideCache: { ttl: 0, maxEntries: 0, evictPolicy: 'LRU' } });
  await redis.set('tracked', '1');
  assert.equal(await cached.get('tracked'), '1');
  assert.equal(await cached.get('tracked'), '1');
  await redis.set('tracked', '2');
  await until(async () => (await cached.get('tracked')) === '2', 'the cache was invalidated');
  await redis.flushAll();
  await until(async () => (await cached.get('tracked')) === null, 'a flush invalidates all');
});

run([2, 3], open);
