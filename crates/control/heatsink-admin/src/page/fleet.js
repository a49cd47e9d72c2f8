// The views of policies and of proxies.

const POLICY_ROWS = 20;

byId("policy-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  setText(byId("policy-error"), "");
  try {
    const policy = await get("/policy?key=" + encodeURIComponent(byId("policy-key").value));
    policyFacts(byId("policy-answer"), policy);
  } catch (refused) {
    byId("policy-answer").replaceChildren();
    setText(byId("policy-error"), refused.message);
  }
});

const cell = (label, text, className = "") =>
  make("td", { role: "cell", "data-label": label, textContent: text, className });

const allowed = (policy) =>
  policy.allowed_mitigations.map((name) => mitigations[name] ?? name).join(", ") || "nothing";

const settingsText = (policy) =>
  Object.entries(policy.settings).map(([name, value]) => `${name} = ${value}`).join(", ") || "none";

/** Reads the policies again now and then: no event tells that a configuration was reloaded. */
const POLICIES_MS = 5000;
let policiesReadAt = 0;

async function openPolicies() {
  policiesReadAt = Date.now();
  const hottest = [...state.keys.values()].map(({ item }) => item)
    .sort((a, b) => b.frequency - a.frequency).slice(0, POLICY_ROWS);
  byId("policies-empty").hidden = hottest.length > 0;
  try {
    const [rules, ...policies] = await Promise.all([
      get("/policies"), ...hottest.map((item) => get("/policy?key=" + keyAddress(item))),
    ]);
    showRules(rules.items);
    byId("policy-rows").replaceChildren(...policies.map((policy, index) => {
      const item = hottest[index];
      const link = make("a", { className: "key", href: "#/key/" + keyAddress(item), textContent: shownKey(item.key) });
      return make("tr", { role: "row" },
        make("td", { role: "cell", "data-label": "Key" }, link),
        cell("Mode", policy.mode),
        cell("Rule", ruleText(policy.rule)),
        cell("Allows", allowed(policy)));
    }));
  } catch (refused) {
    setText(byId("policy-error"), refused.message);
  }
}

let shownRules = "";

function showRules(items) {
  // What is the same stays, so that a selection does.
  const text = JSON.stringify(items);
  if (text === shownRules) return;
  shownRules = text;
  byId("rule-rows").replaceChildren(...items.map((item) => make("tr", { role: "row" },
    cell("Number", item.rule ? String(item.rule.number) : "default"),
    cell("Match", item.rule ? shownKey(item.rule.match) : "all other keys", item.rule ? "key" : ""),
    cell("Mode", item.mode),
    cell("Allows", allowed(item)),
    cell("Settings", settingsText(item)))));
}

/** Called with each sample while the policies are in view. */
function renewPolicies() {
  if (Date.now() - policiesReadAt >= POLICIES_MS) openPolicies();
}

/** What is wrong with a member: servers that it cannot reach weigh more than the fleet. */
function memberState(proxy) {
  const down = proxy.upstream_down ?? [];
  if (down.length > 0) return ["down", `upstream down: ${down.map(({ node }) => node).join(", ")}`];
  return proxy.degraded ? ["degraded", "degraded"] : ["well", "well"];
}

function renderProxies() {
  byId("proxy-rows").replaceChildren(...state.proxies.map((proxy) => {
    const [kind, text] = memberState(proxy);
    const status = cell("State", text);
    status.dataset.status = kind;
    status.title = (proxy.upstream_down ?? []).map(({ node, since, error }) => `${node}: ${error}, since ${since}`).join("; ");
    return make("tr", { role: "row" },
      cell("Address", (proxy.address ?? "takes no clients") + (proxy.is_self ? " (this one)" : "")),
      cell("Role", proxy.role),
      cell("Requests/s", rate(proxy.requests_per_second), "number"),
      cell("Saved", percent(savedShare(proxy)), "number"),
      cell("Hottest node", percent(proxy.hottest_node_share), "number"),
      status,
      cell("Registry", proxy.registry_version === null ? "–" : String(proxy.registry_version), "number"),
      cell("Version", proxy.version),
      cell("Id", proxy.id, "key"));
  }));
}
