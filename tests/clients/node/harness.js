'use strict';
// Runs the cases of one client script and says how many passed. A case is an async
// function that asserts. Host and port come from the command line or from
// HEATSINK_TEST_HOST and HEATSINK_TEST_PORT; the exit status is non-zero on failure.

const CASE_BOUND_MS = 20000;
// So many failures are no case's own fault any more: the rest is not tried.
const FAILURES_AT_MOST = 8;
const cases = [];

function test(name, body) {
  cases.push({ name, body });
}

function address() {
  const host = process.argv[2] ?? process.env.HEATSINK_TEST_HOST;
  const port = Number(process.argv[3] ?? process.env.HEATSINK_TEST_PORT);
  if (!host || !port) {
    console.log(`usage: ${process.argv[1]} HOST PORT`);
    process.exit(2);
  }
  return { host, port };
}

function within(promise, boundMs, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${boundMs} ms: ${what}`)), boundMs);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// Waits for something that only the server can tell.
async function until(condition, what) {
  const deadline = Date.now() + 10000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`still not so after 10 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

// A list that can be waited on: `push` from an event, `take` in the test.
class Inbox {
  constructor() {
    this.items = [];
    this.waiters = [];
  }

  push(item) {
    const waiter = this.waiters.shift();
    if (waiter) waiter(item);
    else this.items.push(item);
  }

  take(what) {
    if (this.items.length > 0) return Promise.resolve(this.items.shift());
    return within(new Promise((resolve) => this.waiters.push(resolve)), 10000, what);
  }
}

// Runs every case once per label. `open(label)` gives what cases take; it has `close()`.
async function run(labels, open) {
  let passed = 0;
  let failed = 0;
  for (const label of labels) {
    for (const { name, body } of cases) {
      let context;
      try {
        context = await within(open(label), CASE_BOUND_MS, 'connect');
        await within(body(context), CASE_BOUND_MS, name);
        passed += 1;
      } catch (error) {
        failed += 1;
        console.log(`FAILED ${label} ${name}\n${error.stack}`);
        if (failed === FAILURES_AT_MOST) {
          console.log(`${passed} passed, ${failed} failed, the rest not tried`);
          process.exit(1);
        }
      }
      if (context) await within(context.close(), CASE_BOUND_MS, 'close').catch(() => {});
    }
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed > 0 || passed === 0 ? 1 : 0);
}

module.exports = { Inbox, address, run, test, until, within };
