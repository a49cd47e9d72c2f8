// Views, the theme, and the life of the connection.

const views = {
  overview: { render: renderOverview },
  key: { open: openKey, render: renderKey },
  policies: { open: openPolicies, render: () => {} },
  proxies: { render: renderProxies },
};

let view = "overview";

function route() {
  const [, name = "", ...rest] = location.hash.split("/");
  view = name === "key" && rest.length ? "key" : name in views && name !== "key" ? name : "overview";
  for (const one of Object.keys(views)) byId("view-" + one).hidden = one !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view !== "key") subject = null;
  views[view].open?.(rest.join("/"));
  render();
}

let waits = false;

/** Draws what is in view, at most once a frame. */
function render() {
  if (waits) return;
  waits = true;
  requestAnimationFrame(() => {
    waits = false;
    views[view].render();
  });
}

/** After a decision about a key. */
function refresh(hash) {
  if (view === "key" && subject?.item?.key_hash === hash) readKey();
  render();
}

function showConnection(text, kind) {
  setText(byId("connection"), text);
  byId("connection").dataset.kind = kind;
}

/** Says what is wrong with the process, above everything else. */
function showNotice(text) {
  byId("notice").hidden = text === "";
  setText(byId("notice"), text);
}

function showReadiness() {
  const { degraded = false, reasons = [] } = state.readiness ?? {};
  showNotice(reasons.join(" ") || (degraded ? "This process is degraded." : ""));
}

let wake = null;

/** Ends the wait for the next try. */
function reconnect() {
  wake?.();
}

async function live() {
  for (let tries = 0; ; tries++) {
    try {
      await listen(async (name, data) => {
        const hash = await takeEvent(name, data);
        if (name === "hello") {
          tries = 0;
          showConnection("live", "live");
          state.readiness = await get("/readyz").catch((refused) => ({ degraded: true, reasons: [refused.message] }));
          route();
        }
        if (name === "sample") sampleKey(data.sample);
        if (name === "sample" && view === "policies") renewPolicies();
        showReadiness();
        if (hash === null) render();
        else refresh(hash);
      });
    } catch (refused) {
      if (refused.status === 401) {
        showConnection("token needed", "lost");
        askToken(refused.message);
        await new Promise((resolve) => { wake = resolve; });
        continue;
      }
      if (refused.status >= 400) showNotice(refused.message);
    }
    showConnection("reconnecting", "lost");
    await new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, Math.min(10000, 500 * 2 ** tries));
    });
  }
}

const themes = ["system", "light", "dark"];

function setTheme(theme) {
  if (theme === "system") {
    localStorage.removeItem("heatsink-theme");
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem("heatsink-theme", theme);
    document.documentElement.dataset.theme = theme;
  }
  setText(byId("theme-button"), "Theme: " + theme);
}

byId("theme-button").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme ?? "system";
  setTheme(themes[(themes.indexOf(theme) + 1) % themes.length]);
});
byId("token-button").addEventListener("click", () => askToken());
byId("token-button").hidden = token.value === null;
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
addEventListener("hashchange", () => {
  route();
  byId("main").focus({ preventScroll: true });
});

startOverview();
startKey();
setTheme(localStorage.getItem("heatsink-theme") ?? "system");
route();
live();
