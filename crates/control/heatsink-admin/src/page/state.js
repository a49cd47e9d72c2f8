// What the page knows, and how it comes to know it: all of it is read after each `hello` and
// `lagged`, then changed by events.

const SPAN = 300;
const SPARKS = 60;

const state = {
  /** By key_hash: the item of the list, its hit ratio and its last rates. */
  keys: new Map(),
  /** Samples of the fleet, oldest first. */
  fleet: [],
  nodes: [],
  proxies: [],
  readiness: null,
  live: false,
};

function rememberKey(item) {
  const known = state.keys.get(item.key_hash);
  if (known) known.item = item;
  else state.keys.set(item.key_hash, { item, hitRatio: null, rates: [] });
}

async function readAll() {
  const [items, history, fleet] = await Promise.all([
    allKeys(), get("/history"), get("/proxies"),
  ]);
  state.keys = new Map();
  items.forEach(rememberKey);
  state.fleet = history.samples;
  state.nodes = history.nodes;
  state.proxies = fleet.items;
  for (const series of history.keys) {
    const known = state.keys.get(series.key_hash);
    if (!known) continue;
    known.rates = series.requests_per_second.slice(-SPARKS);
    known.hitRatio = series.hit_ratio;
  }
}

function takeSample({ fleet, nodes, keys, proxies }) {
  state.fleet.push(fleet);
  state.fleet.splice(0, state.fleet.length - SPAN);
  state.nodes = nodes;
  state.proxies = proxies;
  const sampled = new Map(keys.map((figures) => [figures.key_hash, figures]));
  for (const [hash, known] of state.keys) {
    const figures = sampled.get(hash);
    if (figures) {
      known.item.frequency = figures.frequency;
      known.item.reads_per_second = figures.reads_per_second;
      known.item.writes_per_second = figures.writes_per_second;
      known.hitRatio = figures.hit_ratio;
      known.rates.push(figures.frequency);
      known.rates.splice(0, known.rates.length - SPARKS);
    }
  }
}

/** Takes in one event; says whether it was a decision about a key, and which. */
async function takeEvent(name, data) {
  switch (name) {
    case "hello":
    case "lagged":
      await readAll();
      return null;
    case "hotkey":
      rememberKey(data.hotkey);
      return data.hotkey.key_hash;
    case "removed":
      state.keys.delete(data.removed.key_hash);
      return data.removed.key_hash;
    case "readiness":
      state.readiness = data.readiness;
      return null;
    case "sample":
      takeSample(data.sample);
      return null;
    default:
      return null;
  }
}
