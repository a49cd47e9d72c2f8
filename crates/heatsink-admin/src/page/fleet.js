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

async function openPolicies() {
  const hottest = [...state.keys.values()].map(({ item }) => item)
    .sort((a, b) => b.frequency - a.frequency).slice(0, POLICY_ROWS);
  byId("policies-empty").hidden = hottest.length > 0;
  try {
    const policies = await Promise.all(hottest.map((item) => get("/policy?key=" + keyAddress(item))));
    byId("policy-rows").replaceChildren(...policies.map((policy, index) => {
      const item = hottest[index];
      const link = make("a", { className: "key", href: "#/key/" + keyAddress(item), textContent: shownKey(item.key) });
      return make("tr", { role: "row" },
        make("td", { role: "cell", "data-label": "Key" }, link),
        cell("Mode", policy.mode),
        cell("Rule", ruleText(policy.rule)),
        cell("Allows", policy.allowed_mitigations.map((name) => mitigations[name] ?? name).join(", ") || "nothing"));
    }));
  } catch (refused) {
    setText(byId("policy-error"), refused.message);
  }
}

function renderProxies() {
  byId("proxy-rows").replaceChildren(...state.proxies.map((proxy) => {
    const status = cell("State", proxy.degraded ? "degraded" : "well");
    status.dataset.status = proxy.degraded ? "degraded" : "well";
    return make("tr", { role: "row" },
      cell("Address", (proxy.address ?? "takes no clients") + (proxy.is_self ? " (this one)" : "")),
      cell("Role", proxy.role),
      cell("Requests/s", rate(proxy.requests_per_second), "number"),
      status,
      cell("Registry", proxy.registry_version === null ? "–" : String(proxy.registry_version), "number"),
      cell("Version", proxy.version),
      cell("Id", proxy.id, "key"));
  }));
}
