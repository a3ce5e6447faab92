// Making elements, and asking the server. Text always goes in as text: nothing here reads HTML.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else made.setAttribute(key, String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

// A sentence with commands and names between backticks.
export function withCode(sentence) {
  return sentence.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));
}

// What is wider than its place can be scrolled by keys; what is not is no stop on their way.
const widths = new ResizeObserver((seen) => {
  for (const { target: { parentElement: scroller } } of seen) {
    if (!scroller) continue;
    if (scroller.scrollWidth <= scroller.clientWidth) { scroller.removeAttribute("tabindex"); continue; }
    scroller.tabIndex = 0;
  }
});

export function table(headers, rows) {
  const numeric = headers.map((header) => header.startsWith("#"));
  const made = element("table", {},
    element("thead", {}, element("tr", {},
      headers.map((header, at) => element("th", { scope: "col", class: numeric[at] && "number" }, header.replace(/^#/, ""))))),
    element("tbody", {}, rows.map((row) => element("tr", {},
      row.map((cell, at) => element("td", { class: numeric[at] && "number" }, cell ?? "–"))))));
  widths.observe(made);
  return element("div", { class: "scroll", role: "group", "aria-label": headers.map((each) => each.replace(/^#/, "")).join(", ") }, made);
}

// Who answers in place of a server: (path, body) => a promise of a document, whose `error` says why not.
let inside = null;

export function answerInside(answer) {
  inside = answer;
}

export async function ask(path) {
  if (inside) return accepted(await inside(path));
  return answerOf(await fetch(path, { headers: { Accept: "application/json" } }));
}

export async function tell(path, body) {
  if (inside) return accepted(await inside(path, body));
  return answerOf(await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }));
}

// The cluster cannot say it now: a broker does not answer, or a leader is being elected.
export class NotNow extends Error {}

const AGAIN_MS = 1000;
const pause = () => new Promise((done) => { setTimeout(done, AGAIN_MS); });

// What `question` gives, which is asked again while the cluster cannot say it now and `isWanted()`; `told` hears why.
export async function patiently(question, isWanted, told) {
  for (;;) {
    try {
      return await question();
    } catch (error) {
      if (!(error instanceof NotNow) || !isWanted()) throw error;
      told(error);
    }
    do await pause(); while (document.hidden && isWanted());
  }
}

function accepted(answer) {
  if (answer.error) throw new Error(answer.error);
  return answer;
}

async function answerOf(response) {
  const text = await response.text();
  let answer = null;
  try { answer = JSON.parse(text); } catch { /* an error may be plain text */ }
  if (!response.ok) throw new Error(answer?.error ?? (text || response.statusText));
  if (answer?.not_now) throw new NotNow(answer.not_now);
  return answer;
}

export function count(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString("en");
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) { bytes /= 1024; at += 1; }
  return at === 0 ? `${bytes} B` : `${bytes.toFixed(1)} ${units[at]}`;
}

export function since(milliseconds) {
  const seconds = Math.max(0, milliseconds / 1000);
  if (seconds < 90) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 5400) return `${(seconds / 60).toFixed(0)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export function clock(milliseconds) {
  return new Date(milliseconds).toISOString().slice(11, 23);
}
