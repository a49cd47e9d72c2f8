'use strict';
// ioredis' and node-redis' ordinary clients on one server, or on what is a cluster and looks
// like one. What a cluster cannot do at all is not asked for.

const assert = require('node:assert/strict');
const { Redis } = require('ioredis');
const { createClient } = require('redis');
const { Inbox, address, run, test, until } = require('./harness.js');

const { host, port } = address();

// Both as a function that sends one command; arguments and replies look alike.
const makers = {
  async ioredis(clients) {
    const redis = new Redis({ host, port });
    redis.on('error', () => {});
    clients.push(() => redis.disconnect());
    return {
      call: (...args) => redis.call(...args.map(String)),
      async multi(commands) {
        const batch = redis.multi();
        for (const command of commands) batch.call(...command.map(String));
        return (await batch.exec()).map(([, reply]) => reply);
      },
      subscribe: (channel, listener) => {
        redis.on('message', (_, text) => listener(text));
        return redis.subscribe(channel);
      },
      ssubscribe: (channel, listener) => {
        redis.on('smessage', (from, text) => from === channel && listener(text));
        return redis.ssubscribe(channel);
      },
    };
  },
  async nodeRedis(clients) {
    const redis = createClient({ socket: { host, port } });
    redis.on('error', () => {});
    clients.push(() => redis.destroy());
    await redis.connect();
    return {
      call: (...args) => redis.sendCommand(args.map(String)),
      multi(commands) {
        const batch = redis.multi();
        for (const command of commands) batch.addCommand(command.map(String));
        return batch.exec();
      },
      subscribe: (channel, listener) => redis.subscribe(channel, listener),
      ssubscribe: (channel, listener) => redis.sSubscribe(channel, listener),
    };
  },
};

async function open(label) {
  const clients = [];
  const context = {
    client: () => makers[label](clients),
    async close() {
      for (const close of clients) close();
    },
  };
  context.redis = await context.client();
  await context.redis.call('FLUSHALL');
  return context;
}

const keys = Array.from({ length: 600 }, (_, i) => `k:${i}`);

test('keys all over', async ({ redis }) => {
  assert.equal(await redis.call('MSET', ...keys.flatMap((key, i) => [key, i])), 'OK');
  const values = await redis.call('MGET', ...keys, 'none');
  assert.deepEqual(values, [...keys.map((_, i) => `${i}`), null]);
  assert.equal(await redis.call('DBSIZE'), 600);
  const found = new Set();
  let cursor = '0';
  do {
    const [next, page] = await redis.call('SCAN', cursor, 'COUNT', 50);
    for (const key of page) found.add(key);
    cursor = next;
  } while (cursor !== '0');
  assert.equal(found.size, 600);
  assert.equal((await redis.call('KEYS', 'k:*')).length, 600);
  assert.equal(await redis.call('EXISTS', ...keys), 600);
  assert.equal(await redis.call('UNLINK', ...keys), 600);
  assert.equal(await redis.call('DBSIZE'), 0);
});

test('ten thousand commands at once', async ({ redis }) => {
  const counts = [];
  for (let i = 0; i < 10000; i += 1) counts.push(redis.call('INCR', `n:${i % 100}`));
  (await Promise.all(counts)).forEach((count, i) => assert.equal(count, Math.floor(i / 100) + 1));
});

test('transactions', async ({ redis }) => {
  for (const tag of ['{a}', '{b}', '{c}', '{d}']) {
    const key = `${tag}1`;
    const replies = await redis.multi([['SET', key, 1], ['INCR', key], ['GET', key]]);
    assert.deepEqual(replies, ['OK', 2, '2']);
  }
});

test('scripts', async ({ redis }) => {
  const sha = await redis.call('SCRIPT', 'LOAD', "return redis.call('INCRBY', KEYS[1], ARGV[1])");
  for (let i = 0; i < 30; i += 1) assert.equal(await redis.call('EVALSHA', sha, 1, `s:${i}`, i), i);
  assert.equal(await redis.call('EVAL', 'return ARGV[1]', 0, 'x'), 'x');
});

test('messages', async ({ redis, client }) => {
  const subscriber = await client();
  const inbox = new Inbox();
  await subscriber.subscribe('news', (text) => inbox.push(text));
  for (let i = 0; i < 100; i += 1) await redis.call('PUBLISH', 'news', i);
  for (let i = 0; i < 100; i += 1) assert.equal(await inbox.take(`message ${i}`), `${i}`);
});

test('messages of sharded channels', async ({ redis, client }) => {
  const subscriber = await client();
  const inbox = new Inbox();
  const channels = Array.from({ length: 12 }, (_, i) => `shard:${i}`);
  for (const channel of channels) {
    await subscriber.ssubscribe(channel, (text) => inbox.push(`${channel} ${text}`));
  }
  for (const channel of channels) assert.equal(await redis.call('SPUBLISH', channel, 'x'), 1);
  const received = [];
  for (const channel of channels) received.push(await inbox.take(`the message of ${channel}`));
  assert.deepEqual(received.sort(), channels.map((channel) => `${channel} x`).sort());
});

test('blocking', async ({ redis, client }) => {
  const waiter = await client();
  for (const key of ['q1', 'q2', 'q3', 'q4']) {
    const pending = waiter.call('BLPOP', key, 20);
    await until(async () => {
      const info = await redis.call('INFO', 'clients');
      return Number(/blocked_clients:(\d+)/.exec(info)[1]) >= 1;
    }, 'a blocked client');
    await redis.call('RPUSH', key, 'x');
    assert.deepEqual(await pending, [key, 'x']);
  }
});

test('errors', async ({ redis }) => {
  await redis.call('LPUSH', 'list', 'x');
  await assert.rejects(redis.call('INCR', 'list'), /WRONGTYPE/);
  await assert.rejects(redis.call('NOSUCH'), /unknown command/);
  assert.equal(await redis.call('PING'), 'PONG');
});

run(['ioredis', 'nodeRedis'], open);
