// Asks the shop once a second what it has counted, and shows it. Text only: nothing is made markup.
'use strict';

const NAMES = { naive: 'naive', locked: 'lock', stale: 'stale', heatsink: 'Heatsink', each: 'each in turn' };
const WAYS = ['naive', 'locked', 'stale', 'heatsink'];
const SHOWN = 90;
const element = (id) => document.getElementById(id);
const number = (value, digits = 0) =>
  value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
const ms = (us) => us < 100 ? number(us) + ' µs' : (us >= 100000 ? number(us / 1000) : us >= 10000 ? number(us / 1000, 1) : number(us / 1000, 2)) + ' ms';

// What a row shows of a way that was loaded.
const ROWS = [
  ['queries per expiry', (way) => number(way.queries / Math.max(way.expiries, 1), 1), 'main'],
  ['worst', (way) => number(way.worst)],
  ['queries/s', (way) => number(way.queries / Math.max(way.seconds, 1), 1)],
  ['p50', (way) => ms(way.p50_us)],
  ['p99', (way) => ms(way.p99_us), 'main'],
  ['requests', (way) => number(way.requests)],
  ['hits in memory', (way) => number(way.local)],
  ['hits in Redis', (way) => number(way.shared)],
  ['own query', (way) => number(way.loaded)],
  ['waited', (way) => number(way.joined)],
  ['served stale', (way) => number(way.stale)],
  ['oldest', (way) => number(way.oldest_ms) + ' ms'],
  ['failed, not sent', (way) => number(way.failed + way.shed)],
];

function table(ways) {
  const rows = ROWS.map(([words, show, kind]) => {
    const row = document.createElement('tr');
    if (kind) row.className = kind;
    const head = document.createElement('th');
    head.scope = 'row';
    head.textContent = words;
    row.append(head);
    for (const name of WAYS) {
      const way = ways.find((way) => way.way === name);
      const cell = document.createElement('td');
      cell.textContent = way && way.requests > 0 ? show(way) : '–';
      row.append(cell);
    }
    return row;
  });
  element('rows').replaceChildren(...rows);
}

function chart(seconds) {
  const most = Math.max(10, ...seconds.map((second) => second.counts.queries));
  const bars = seconds.map((second, index) => {
    const bar = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    // At least a pixel: one query per second is not none.
    const height = second.counts.queries === 0 ? 0 : Math.max(2, (second.counts.queries / most) * 196);
    bar.setAttribute('x', (SHOWN - seconds.length + index) * 10 + 1);
    bar.setAttribute('width', 8);
    bar.setAttribute('y', 200 - height);
    bar.setAttribute('height', height);
    bar.setAttribute('class', second.way);
    return bar;
  });
  element('chart').replaceChildren(...bars);
  element('scale').textContent = 'full height: ' + number(most) + ' queries/s';
}

let isFollowing = false;

function show(stats) {
  element('setup').textContent =
    `It is fresh for ${number(stats.ttl_ms)} ms; a query takes ${number(stats.query_ms)} ms. ` +
    `${stats.instances} instances of the service share one Redis and ` +
    `${stats.connections} connections to Postgres.`;
  table(stats.ways);
  chart(stats.seconds);
  const last = stats.seconds.at(-1);
  if (last) {
    element('live-queries').textContent = number(last.counts.queries);
    element('live-words').textContent =
      `in the last second of load, ${NAMES[last.way]}: p50 ${ms(last.p50_us)}, p99 ${ms(last.p99_us)}, ` +
      `${number(last.counts.local + last.counts.shared)} hits, ${number(last.counts.joined)} waited for another, ` +
      `${number(last.counts.stale)} stale`;
    const failed = last.counts.failed + last.counts.shed;
    element('live-failed').textContent = failed > 0 ? `${number(failed)} failed` : '';
  }
  element('trouble').textContent = stats.redis_trouble === null
    ? ''
    : `Redis cannot be asked (${stats.redis_trouble}): each instance queries for itself, once a second.`;
  const runs = stats.load.rate > 0;
  if (runs && !isFollowing) {
    // Somebody else has begun, or this page was opened again.
    element('controls').elements.target.value = stats.load.target;
    element('rate').value = stats.load.rate;
  }
  isFollowing = true;
  element('stop').disabled = !runs;
  element('state').textContent = runs
    ? `${NAMES[stats.load.target]}, ${number(stats.load.rate)} requests/s`
    : 'not under load';
  element('calls').textContent = stats.postgres_calls === null
    ? ''
    : `Postgres has counted ${number(stats.postgres_calls)} of these queries since it started.`;
}

async function setLoad(rate) {
  const target = new FormData(element('controls')).get('target');
  await fetch('/load', {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ target, rate }),
  });
}

element('controls').addEventListener('submit', (event) => {
  event.preventDefault();
  setLoad(Number(element('rate').value)).catch(lost);
});
element('stop').addEventListener('click', () => setLoad(0).catch(lost));
// The switch works while it runs, too.
element('controls').addEventListener('change', (event) => {
  if (event.target.name === 'target' && !element('stop').disabled) {
    setLoad(Number(element('rate').value)).catch(lost);
  }
});

function lost() {
  element('state').textContent = 'the shop does not answer';
}

async function follow() {
  try {
    const answer = await fetch('/stats');
    show(await answer.json());
  } catch {
    lost();
  }
  setTimeout(follow, 1000);
}
follow();
