'use strict';
// ioredis' cluster client: the same cases for a cluster of many nodes and for one that looks
// like a single node.

const assert = require('node:assert/strict');
const { randomBytes } = require('node:crypto');
const { Cluster } = require('ioredis');
const { Inbox, address, run, test, until } = require('./harness.js');

const { host, port } = address();

async function open() {
  const clients = [];
  const context = {
    client(options = {}) {
      const client = new Cluster([{ host, port }], options);
      client.on('error', () => {});
      clients.push(client);
      return client;
    },
    async close() {
      for (const client of clients) client.disconnect();
    },
  };
  context.redis = context.client();
  await context.redis.set('ready', '1');
  await Promise.all(context.redis.nodes('master').map((node) => node.flushall()));
  return context;
}

test('every type', async ({ redis }) => {
  assert.equal(await redis.set('s', 'v', 'EX', 1000), 'OK');
  assert.equal(await redis.get('s'), 'v');
  assert.equal(await redis.get('none'), null);
  assert.equal(await redis.incrby('n', 5), 5);
  assert.equal(await redis.hset('h', { a: 1, b: 2 }), 2);
  assert.deepEqual({ ...(await redis.hgetall('h')) }, { a: '1', b: '2' });
  assert.equal(await redis.rpush('l', 'a', 'b'), 2);
  assert.equal(await redis.sadd('set', 'a', 'b'), 2);
  assert.equal(await redis.zadd('z', 1, 'a', 2.5, 'b'), 2);
  assert.equal(await redis.xadd('x', '1-1', 'f', 'v'), '1-1');
  await assert.rejects(redis.incr('l'), /WRONGTYPE/);
});

test('keys all over', async ({ redis }) => {
  const keys = Array.from({ length: 600 }, (_, i) => `k:${i}`);
  await Promise.all(keys.map((key, i) => redis.set(key, i)));
  const values = await Promise.all(keys.map((key) => redis.get(key)));
  values.forEach((value, i) => assert.equal(value, `${i}`));
  const sizes = await Promise.all(redis.nodes('master').map((node) => node.dbsize()));
  assert.equal(sizes.reduce((sum, size) => sum + size, 0), 600);
  const found = new Set();
  for (const node of redis.nodes('master')) {
    for await (const page of node.scanStream({ match: 'k:*', count: 50 })) {
      for (const key of page) found.add(key);
    }
  }
  assert.equal(found.size, 600);
});

test('keys of one slot', async ({ redis }) => {
  assert.equal(await redis.mset('{t}a', 1, '{t}b', 2), 'OK');
  assert.deepEqual(await redis.mget('{t}a', '{t}b', '{t}c'), ['1', '2', null]);
  assert.equal(await redis.del('{t}a', '{t}b'), 2);
  assert.equal(await redis.rpush('{t}l', 'x'), 1);
  assert.deepEqual(await redis.blpop('{t}none', '{t}l', 1), ['{t}l', 'x']);
});

test('pipelines and transactions', async ({ redis }) => {
  const pipeline = redis.pipeline();
  for (let i = 0; i < 3000; i += 1) pipeline.set(`{p}${i}`, i);
  for (let i = 0; i < 3000; i += 1) pipeline.get(`{p}${i}`);
  const replies = await pipeline.exec();
  replies.forEach(([error, reply], i) => {
    assert.equal(error, null);
    assert.equal(reply, i < 3000 ? 'OK' : `${i - 3000}`);
  });
  const outcome = await redis.multi().set('{t}a', 1).incr('{t}a').get('{t}a').exec();
  assert.deepEqual(outcome, [[null, 'OK'], [null, 2], [null, '2']]);
});

test('ten thousand commands at once', async ({ redis }) => {
  const counts = [];
  for (let i = 0; i < 10000; i += 1) counts.push(redis.incr(`n:${i % 100}`));
  (await Promise.all(counts)).forEach((count, i) => assert.equal(count, Math.floor(i / 100) + 1));
});

test('automatic pipelining', async ({ client }) => {
  const automatic = client({ enableAutoPipelining: true });
  const keys = Array.from({ length: 1000 }, (_, i) => `a:${i}`);
  await Promise.all(keys.map((key, i) => automatic.set(key, i)));
  const values = await Promise.all(keys.map((key) => automatic.get(key)));
  values.forEach((value, i) => assert.equal(value, `${i}`));
});

test('scripts', async ({ redis }) => {
  assert.deepEqual(await redis.eval('return {KEYS[1], ARGV[1]}', 1, 'k', 'v'), ['k', 'v']);
  const lua = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
  redis.defineCommand('add', { numberOfKeys: 1, lua });
  for (let i = 0; i < 30; i += 1) assert.equal(await redis.add(`s:${i}`, i), i);
});

test('messages', async ({ redis, client }) => {
  const subscriber = client();
  const inbox = new Inbox();
  subscriber.on('message', (channel, text) => inbox.push([channel, text]));
  await subscriber.subscribe('news');
  await until(async () => {
    await redis.publish('news', 'hello');
    return inbox.items.length > 0;
  }, 'a message');
  assert.deepEqual(await inbox.take('it'), ['news', 'hello']);
  await subscriber.unsubscribe('news');
});

test('reads from anywhere', async ({ redis, client }) => {
  await redis.set('k', 'v');
  for (const scaleReads of ['all', 'slave', 'master']) {
    const reader = client({ scaleReads });
    await until(async () => (await reader.get('k')) === 'v', `a read from ${scaleReads}`);
  }
});

test('the cluster itself', async ({ redis }) => {
  assert.match(await redis.cluster('INFO'), /cluster_state:ok/);
  assert.equal(await redis.cluster('KEYSLOT', 'foo'), 12182);
  const slots = await redis.cluster('SLOTS');
  assert.equal(slots.reduce((sum, [first, last]) => sum + last - first + 1, 0), 16384);
  assert.ok(redis.nodes('master').length > 0);
});

test('big values', async ({ redis }) => {
  const big = randomBytes(8 << 20);
  await redis.set('big', big);
  assert.ok(big.equals(await redis.getBuffer('big')));
});

run(['cluster'], open);
