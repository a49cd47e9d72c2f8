// The overview: the fleet in figures and charts, and the table of hot keys.

/** Rows that are drawn; a filter finds the others. */
const ROWS = 50;

const columns = [
  { id: "key", label: "Key", value: ({ item }) => item.key, text: true },
  { id: "frequency", label: "Requests/s", value: ({ item }) => item.frequency },
  { id: "trend", label: "Last minute", fixed: true },
  { id: "reads", label: "Reads", value: ({ item }) => item.reads_per_second / Math.max(item.frequency, 1e-9) },
  { id: "hits", label: "Hit ratio", value: ({ hitRatio }) => hitRatio ?? -1 },
  { id: "mitigation", label: "Mitigation", value: ({ item }) => item.mitigation_type, text: true },
  { id: "status", label: "Status", value: ({ item }) => item.status, text: true },
  { id: "detected", label: "Since", value: ({ item }) => Date.parse(item.detected_at) },
  { id: "actions", label: "Actions", fixed: true },
];

const order = { id: "frequency", down: true };
const rows = new Map();
let requestsChart, shareChart, nodesChart;

function sortBy(id) {
  const column = columns.find((one) => one.id === id);
  order.down = order.id === id ? !order.down : !column.text;
  order.id = id;
  showOrder();
  renderKeys(true);
}

function showOrder() {
  for (const cell of byId("key-columns").children) {
    const sorted = cell.dataset.column === order.id;
    if (sorted) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  }
  byId("key-sort").value = order.id;
}

function startOverview() {
  requestsChart = timeline(byId("chart-requests"), [["requests", "hot"], ["saved", "cool"]], (value) => shortNumber.format(value));
  shareChart = timeline(byId("chart-share"), [["hottest node", "warm"]], (value) => wholeNumber.format(value * 100) + " %", 1);
  nodesChart = bars(byId("chart-nodes"));
  for (const column of columns) {
    const cell = make("th", { role: "columnheader", scope: "col", "data-column": column.id });
    if (column.fixed) {
      cell.append(column.label);
    } else {
      cell.append(make("button", { type: "button", textContent: column.label, onclick: () => sortBy(column.id) }));
      byId("key-sort").append(make("option", { value: column.id, textContent: column.label.toLowerCase() }));
      if (!column.text) cell.className = "number";
    }
    byId("key-columns").append(cell);
  }
  byId("key-sort").addEventListener("change", (event) => sortBy(event.target.value));
  byId("key-filter").addEventListener("input", () => renderKeys(true));
  byId("promote-new").addEventListener("click", () => askPromote());
  showOrder();
}

const counted = (proxies) => `${proxies} ${proxies === 1 ? "proxy" : "proxies"}`;

/** Of all requests, or of those of the proxies that say what they send: others are older, or were
 * not heard of lately. */
function savedNote(sample, measured, proxies) {
  const share = savedShare(sample);
  const part = share === null ? "" : percent(share) + " of all requests";
  return measured === proxies ? part : `${part}, of ${measured} of ${counted(proxies)}`.replace(/^, /, "");
}

function renderOverview() {
  const last = state.fleet.at(-1) ?? {};
  const { requests_per_second: requests = null, served_per_second: served = null, saved_per_second: saved = null, hottest_node_share: share = null } = last;
  const proxies = state.proxies.filter((one) => one.address !== null);
  const measured = proxies.filter((one) => one.served_per_second !== null).length;
  const actions = [...state.keys.values()].filter(({ item }) => !item.dry_run && item.status !== "candidate").length;
  setText(byId("tile-requests"), rate(requests));
  setText(byId("tile-requests-note"), counted(proxies.length));
  setText(byId("tile-saved"), rate(saved));
  setText(byId("tile-saved-note"), saved === null ? "not measured" : savedNote(last, measured, proxies.length));
  setText(byId("tile-share"), percent(share));
  const hottest = state.nodes.reduce((a, b) => (b.share > (a?.share ?? 0) ? b : a), null);
  setText(byId("tile-share-note"), hottest ? hottest.node : "not measured");
  setText(byId("tile-keys"), String(state.keys.size));
  setText(byId("tile-keys-note"), `${actions} acted on`);

  setTimeline(requestsChart, state.fleet, ["served_per_second", "saved_per_second"]);
  setTimeline(shareChart, state.fleet, ["hottest_node_share"]);
  byId("chart-requests").setAttribute("aria-label", `Line chart: now ${rate(served)} requests a second, ${rate(saved)} saved`);
  byId("chart-share").setAttribute("aria-label", `Line chart: now ${percent(share)} of the commands on the hottest node`);
  const nodes = [...state.nodes].sort((a, b) => b.commands_per_second - a.commands_per_second).slice(0, 12);
  setBars(nodesChart, nodes.map((node) => [node.node, node.commands_per_second]));
  byId("chart-nodes").setAttribute("aria-label", "Bar chart: " + nodes.map((node) => `${node.node} ${rate(node.commands_per_second)}`).join(", "));
  byId("nodes-empty").hidden = nodes.length > 0;
  byId("chart-nodes").toggleAttribute("hidden", nodes.length === 0);
  renderKeys(false);
}

function makeRow(hash) {
  const current = () => state.keys.get(hash)?.item;
  const trend = shape("svg", { class: "spark", viewBox: "0 0 120 28", role: "img" });
  const link = make("a", { className: "key" });
  const cell = (id, ...children) => {
    const column = columns.find((one) => one.id === id);
    const made = make("td", { role: "cell", "data-label": column.label }, ...children);
    if (!column.text && !column.fixed) made.className = "number";
    return made;
  };
  const button = (text, act) =>
    make("button", { type: "button", textContent: text, onclick: () => current() && act(current()) });
  const promote = button("Promote", askPromote);
  const demote = button("Demote", askDemote);
  const cells = {
    frequency: cell("frequency"), reads: cell("reads"), hits: cell("hits"),
    mitigation: cell("mitigation"), status: cell("status"), detected: cell("detected"),
  };
  const element = make("tr", { role: "row", "data-hash": hash },
    cell("key", link), cells.frequency, cell("trend", trend), cells.reads, cells.hits,
    cells.mitigation, cells.status, cells.detected, cell("actions", promote, demote));
  return { element, link, cells, trend, promote, demote };
}

function fillRow(row, { item, hitRatio, rates }) {
  const shown = shownKey(item.key);
  setText(row.link, shown);
  row.link.href = "#/key/" + keyAddress(item);
  row.promote.setAttribute("aria-label", "Promote " + shown);
  row.demote.setAttribute("aria-label", "Demote " + shown);
  setText(row.cells.frequency, rate(item.frequency));
  setText(row.cells.reads, item.frequency > 0 ? percent(item.reads_per_second / item.frequency) : "–");
  setText(row.cells.hits, percent(hitRatio));
  setText(row.cells.mitigation, mitigationText(item) + (item.dry_run ? " (dry run)" : ""));
  setText(row.cells.status, item.origin === "auto" ? item.status : `${item.status}, ${item.origin}`);
  row.cells.status.dataset.status = item.status;
  setText(row.cells.detected, ago(item.detected_at));
  row.trend.setAttribute("aria-label", `Requests a second in the last minute, now ${rate(item.frequency)}`);
  setSpark(row.trend, rates);
}

/** The keys in the order asked for. While somebody points at the table, rows keep their
 * places: nobody should demote what slipped under the pointer. */
function orderedKeys(mayMove) {
  const filter = byId("key-filter").value;
  const column = columns.find((one) => one.id === order.id);
  const fits = [...state.keys].filter(([, known]) => known.item.key.includes(filter));
  const compare = column.text
    ? (a, b) => String(column.value(a)).localeCompare(String(column.value(b)))
    : (a, b) => column.value(a) - column.value(b);
  fits.sort(([, a], [, b]) => (order.down ? compare(b, a) : compare(a, b)));
  if (!mayMove && byId("key-rows").matches(":hover, :focus-within")) {
    const places = new Map([...byId("key-rows").children].map((row, index) => [row.dataset.hash, index]));
    fits.sort(([a], [b]) => (places.get(a) ?? ROWS) - (places.get(b) ?? ROWS));
  }
  return fits;
}

function renderKeys(mayMove) {
  const fits = orderedKeys(mayMove);
  const body = byId("key-rows");
  const shown = new Set();
  fits.slice(0, ROWS).forEach(([hash, known], index) => {
    shown.add(hash);
    let row = rows.get(hash);
    if (!row) rows.set(hash, row = makeRow(hash));
    if (body.children[index] !== row.element) body.insertBefore(row.element, body.children[index] ?? null);
    fillRow(row, known);
  });
  for (const [hash, row] of rows) {
    if (shown.has(hash)) continue;
    row.element.remove();
    rows.delete(hash);
  }
  byId("keys-empty").hidden = fits.length > 0;
  setText(byId("keys-empty"), state.keys.size === 0 ? "No key is hot." : "No hot key has this in its name.");
  byId("key-table").hidden = fits.length === 0;
  byId("keys-more").hidden = fits.length <= ROWS;
  setText(byId("keys-more"), `The first ${ROWS} of ${fits.length}: filter to see others.`);
}
