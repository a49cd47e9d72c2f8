// The API: requests, the token, and the stream of events. A browser's own EventSource cannot
// show a token, so the stream is read from an ordinary request.

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const token = {
  get value() {
    return sessionStorage.getItem("heatsink-token");
  },
  set value(text) {
    if (text === null) sessionStorage.removeItem("heatsink-token");
    else sessionStorage.setItem("heatsink-token", text);
  },
};

async function send(method, path, { body, signal } = {}) {
  const headers = {};
  if (token.value !== null) headers.Authorization = "Bearer " + token.value;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "Heatsink does not answer. Is it running?");
  }
  if (answer.ok) return answer;
  let problem = {};
  try {
    problem = await answer.json();
  } catch {
    // What is between may answer in its own words.
  }
  throw new Refused(answer.status, problem.detail ?? `It answers ${answer.status}.`);
}

const get = async (path) => (await send("GET", path)).json();

/** All hot keys, at most ten pages of them. */
async function allKeys() {
  const items = [];
  let cursor = null;
  for (let page = 0; page < 10; page++) {
    const more = cursor === null ? "" : "&cursor=" + encodeURIComponent(cursor);
    const answer = await get("/hotkeys?limit=1000" + more);
    items.push(...answer.items);
    cursor = answer.next_cursor;
    if (cursor === null) break;
  }
  return items;
}

/** Calls `heard(name, data)` for each event until the stream ends or is silent for too long:
 * samples come each second, so silence is a connection that nobody closed. */
async function listen(heard, silenceMs = 10000) {
  const stopped = new AbortController();
  let watchdog = setTimeout(() => stopped.abort(), silenceMs);
  try {
    const answer = await send("GET", "/events?samples=true", { signal: stopped.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(() => stopped.abort(), silenceMs);
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        const field = (name) =>
          frame.split("\n").find((line) => line.startsWith(name + ":"))?.slice(name.length + 1).trim();
        const name = field("event");
        if (name !== undefined) await heard(name, JSON.parse(field("data")));
      }
    }
  } finally {
    clearTimeout(watchdog);
    stopped.abort();
  }
}
