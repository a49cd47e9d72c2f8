// The page of one key: its figures over time, what was decided and why, its policy.

let rateChart, hitsChart;
/** What is shown: the address of the key, its name and hash once known, and its samples. */
let subject = null;

function startKey() {
  rateChart = timeline(byId("chart-key-rate"), [["requests", "hot"]], (value) => shortNumber.format(value));
  hitsChart = timeline(byId("chart-key-hits"), [["hit ratio", "cool"]], (value) => wholeNumber.format(value * 100) + " %", 1);
  byId("key-promote").addEventListener("click", () => subject?.item && askPromote(subject.item));
  byId("key-demote").addEventListener("click", () => subject?.item && askDemote(subject.item));
}

function facts(list, pairs) {
  list.replaceChildren(...pairs.map(([name, value]) =>
    make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }))));
}

function policyFacts(list, policy) {
  facts(list, [
    ["Mode", policy.mode],
    ["Rule", ruleText(policy.rule)],
    ["Allows", allowed(policy)],
    ["Settings", settingsText(policy)],
  ]);
}

const ruleText = (rule) => (rule ? `${rule.number}: ${shownKey(rule.match)}` : "none: the default");

async function openKey(address) {
  subject = { address, item: null, samples: [], decisions: [] };
  setText(byId("key-title"), "…");
  await readKey();
}

/** Reads what the stream does not tell: the past, the decisions, the policy. */
async function readKey() {
  const asked = subject;
  const path = "/hotkeys/" + asked.address;
  try {
    const history = await get(path + "/history");
    const policy = await get("/policy?key=" + asked.address);
    if (subject !== asked) return;
    const { key, key_base64, key_hash } = history;
    asked.item = key_base64 === undefined ? { key, key_hash } : { key, key_base64, key_hash };
    asked.samples = history.samples;
    asked.decisions = history.decisions;
    policyFacts(byId("key-policy"), policy);
  } catch (refused) {
    if (subject !== asked) return;
    asked.item = null;
    asked.samples = [];
    asked.decisions = [];
    setText(byId("key-title"), shownKey(decoded(asked.address)));
    setText(byId("key-absent"), refused.message);
  }
  renderKey();
}

function decoded(address) {
  try {
    return decodeURIComponent(address);
  } catch {
    return address;
  }
}

/** Adds the newest sample of the stream to the timeline. */
function sampleKey(sample) {
  if (!subject?.item) return;
  const figures = sample.keys.find((one) => one.key_hash === subject.item.key_hash);
  if (!figures) return;
  subject.samples.push({ at: sample.fleet.at, requests_per_second: figures.frequency, hit_ratio: figures.hit_ratio });
  subject.samples.splice(0, subject.samples.length - SPAN);
}

function renderKey() {
  if (!subject) return;
  const known = subject.item && state.keys.get(subject.item.key_hash);
  if (known) subject.item = known.item;
  if (subject.item) setText(byId("key-title"), shownKey(subject.item.key));
  if (subject.item && !known) setText(byId("key-absent"), "This key is not in the registry any more.");
  byId("key-absent").hidden = Boolean(known);
  byId("key-promote").hidden = !subject.item;
  byId("key-demote").hidden = !known;
  byId("key-now").hidden = !known;
  setText(byId("key-reason"), known ? known.item.reason : "");
  if (known) {
    const { item } = known;
    facts(byId("key-facts"), [
      ["Requests/s", rate(item.frequency)],
      ["Reads/s", rate(item.reads_per_second)],
      ["Writes/s", rate(item.writes_per_second)],
      ["Hit ratio", percent(known.hitRatio)],
      ["Mitigation", mitigationText(item) + (item.dry_run ? " (dry run)" : "")],
      ["Status", `${item.status}, ${item.origin}`],
      ["Since", ago(item.detected_at)],
      ["Lives", item.ttl_seconds === null ? "until removed" : item.ttl_seconds + " s"],
      ...(item.guard ? [["Guard", item.guard]] : []),
      ["Hash", item.key_hash],
    ]);
  }
  setTimeline(rateChart, subject.samples, ["requests_per_second"]);
  setTimeline(hitsChart, subject.samples, ["hit_ratio"]);
  const last = subject.samples.at(-1) ?? {};
  byId("chart-key-rate").setAttribute("aria-label", `Line chart: now ${rate(last.requests_per_second)} requests a second`);
  byId("chart-key-hits").setAttribute("aria-label", `Line chart: now ${percent(last.hit_ratio)}`);
  const words = (one) => (one.status === undefined ? "removed" : `${one.status}: ${mitigations[one.mitigation_type] ?? one.mitigation_type}`);
  byId("key-decisions").replaceChildren(...[...subject.decisions].reverse().map((one) =>
    make("li", {},
      make("time", { dateTime: one.at, textContent: clock(one.at) }),
      make("strong", { textContent: words(one) }),
      make("span", { textContent: one.reason }))));
  byId("decisions-empty").hidden = subject.decisions.length > 0;
}
