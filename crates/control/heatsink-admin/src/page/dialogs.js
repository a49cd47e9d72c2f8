// What asks before it changes something, and what says how that went.

let toastEnd = 0;

function toast(text) {
  setText(byId("toast"), text);
  clearTimeout(toastEnd);
  toastEnd = setTimeout(() => setText(byId("toast"), ""), 6000);
}

/** Opens a dialog; `act` is done when it is confirmed, and its error is shown in it. */
function ask(dialog, act) {
  const form = dialog.querySelector("form");
  const error = dialog.querySelector(".error");
  const confirm = dialog.querySelector("[type=submit]");
  error.textContent = "";
  confirm.disabled = false;
  form.onsubmit = async (event) => {
    event.preventDefault();
    error.textContent = "";
    confirm.disabled = true;
    try {
      await act();
      dialog.close();
    } catch (refused) {
      error.textContent = refused.message;
      if (refused.status === 401) {
        dialog.close();
        askToken(refused.message);
      }
    } finally {
      confirm.disabled = false;
    }
  };
  if (!dialog.open) dialog.showModal();
}

for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}

/** Asks for the token. It is kept only if the API takes it. */
function askToken(why = "") {
  const dialog = byId("token-dialog");
  const input = byId("token-value");
  if (dialog.open) return;
  byId("token-button").hidden = false;
  input.value = "";
  ask(dialog, async () => {
    const before = token.value;
    token.value = input.value.trim();
    try {
      await get("/hotkeys?limit=1");
    } catch (refused) {
      token.value = before;
      if (refused.status === 401) throw new Refused(0, refused.message);
      throw refused;
    }
    toast("The token is right.");
    reconnect();
  });
  if (token.value !== null) dialog.querySelector(".error").textContent = why;
}

for (const [name, text] of Object.entries(mitigations)) {
  byId("promote-mitigation").append(make("option", { value: name, textContent: text }));
}

function showFactor() {
  byId("promote-factor-label").hidden = byId("promote-mitigation").value !== "split";
}

byId("promote-mitigation").addEventListener("change", showFactor);

/** Promotes `item`, or a key that is typed in if there is none. */
function askPromote(item) {
  const key = byId("promote-key");
  key.value = item ? shownKey(item.key) : "";
  key.readOnly = item !== undefined;
  byId("promote-mitigation").value = item?.mitigation_type ?? "local_cache";
  byId("promote-factor").value = Math.max(2, item?.split_factor ?? 2);
  byId("promote-ttl").value = "";
  showFactor();
  ask(byId("promote-dialog"), async () => {
    const body = { mitigation_type: byId("promote-mitigation").value };
    if (body.mitigation_type === "split") body.split_factor = byId("promote-factor").valueAsNumber;
    if (byId("promote-ttl").value !== "") body.ttl_seconds = byId("promote-ttl").valueAsNumber;
    const address = item ? keyAddress(item) : typedAddress(key.value);
    const answer = await send("POST", `/hotkeys/${address}/promote`, { body });
    const promoted = await answer.json();
    rememberKey(promoted);
    toast(`Promoted: ${shownKey(promoted.key)}, ${mitigationText(promoted)}`);
    refresh(promoted.key_hash);
  });
}

function askDemote(item) {
  setText(byId("demote-key"), shownKey(item.key));
  ask(byId("demote-dialog"), async () => {
    const answer = await send("DELETE", "/hotkeys/" + keyAddress(item));
    const { blocked_seconds: seconds } = await answer.json();
    state.keys.delete(item.key_hash);
    toast(`Demoted: ${shownKey(item.key)}; not promoted by itself for ${seconds} s`);
    refresh(item.key_hash);
  });
}
