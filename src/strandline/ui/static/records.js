// The record browser: from an offset, a time or the end; of one key, or with a text in the value; decoded as
// is wanted; page after page, or the tail as it grows.
import { NotNow, ask, element, patiently } from "./dom.js";
import { produceForm } from "./edit.js";
import { leaderTrouble } from "./picture.js";

const FOLLOW_MS = 1000;
const FOLLOWED_MAX = 200; // cards; older ones go
const FORMS = [["auto", "as they look"], ["json", "JSON"], ["text", "text"], ["bytes", "bytes"], ["avro", "Avro"]];

export function records(into, live, topic, number) {
  const at = element("select", { "aria-label": "From where" },
    element("option", { value: "latest" }, "the last ones"), element("option", { value: "earliest" }, "the first ones"),
    element("option", { value: "offset" }, "from offset"), element("option", { value: "time" }, "from time (UTC)"));
  const value = element("input", { "aria-label": "Offset or time", hidden: true });
  const key = element("input", { placeholder: "any key", "aria-label": "Of this key only" });
  const contains = element("input", { placeholder: "any value", "aria-label": "With this text in the value" });
  const follow = element("input", { type: "checkbox", onchange: () => { if (follow.checked) load("latest", false); } });
  const state = element("p", { class: "quiet", role: "status" });
  const committed = element("input", { type: "checkbox", id: "committed" });
  const forms = { keys: formOf("keys"), values: formOf("values") };
  const place = element("div");
  const more = element("button", { hidden: true, onclick: () => load(more.dataset.next, true) }, "More");
  at.addEventListener("change", () => {
    value.hidden = !["offset", "time"].includes(at.value);
    value.type = at.value === "time" ? "datetime-local" : "number";
    value.step = 1;
  });
  const form = element("form", { class: "row card", onsubmit: (event) => { event.preventDefault(); load(where(), false); } },
    at, value, key, contains, element("label", {}, "keys ", forms.keys), element("label", {}, "values ", forms.values),
    element("label", { for: "committed" }, committed, " committed only"), element("button", {}, "Show"), element("label", {}, follow, " follow the tail"));
  into.replaceChildren(element("h1", {}, `Records of ${topic}, partition ${number}`),
    element("p", {}, element("a", { href: `#/topics/${encodeURIComponent(topic)}/${number}` }, "Its replicas")), form, produceForm(topic, number), state, place, more);
  let shownTo = 0; // the offset behind what was read
  let run = 0; // counts loads: an answer to an old question is dropped
  let isLoading = false;
  let hasLeft = false;

  function tell(words, how) {
    if (state.textContent !== words) state.textContent = words;
    state.className = how;
  }

  // The picture knows before an answer comes, or is missed, why there is none yet.
  function tellWhy(error = null) {
    const why = leaderTrouble(live, topic, number) ?? error?.message;
    if (why) tell(`${why} This page goes on by itself.`, "warn");
  }

  function where() {
    if (at.value === "offset") return value.value || "0";
    if (at.value === "time") return `time:${Date.parse(`${value.value || "1970-01-01T00:00"}Z`)}`;
    return at.value;
  }

  function query(from) {
    const asked = new URLSearchParams({ at: from, limit: 50, keys: forms.keys.value, values: forms.values.value });
    if (key.value) asked.set("key", key.value);
    if (contains.value) asked.set("contains", contains.value);
    if (committed.checked) asked.set("committed", "1");
    return ask(`/api/topics/${encodeURIComponent(topic)}/${number}/records?${asked}`);
  }

  async function load(from, isMore) {
    const mine = run += 1;
    const isWanted = () => mine === run && !hasLeft;
    more.disabled = isLoading = true;
    tellWhy();
    try {
      const found = await patiently(() => query(from), isWanted, tellWhy);
      if (!isWanted()) return;
      const shown = found.records.map(recordCard);
      // The tail grows at the top; pages follow one another downwards.
      if (isMore) place.append(...shown); else place.replaceChildren(...(follow.checked ? shown.reverse() : shown));
      if (!isMore && !shown.length) place.replaceChildren(element("p", { class: "quiet" }, `Nothing from ${found.from} to ${found.next}.`));
      more.hidden = follow.checked || found.next >= found.end;
      more.dataset.next = String(found.next);
      shownTo = found.next;
      tell(follow.checked ? "The newest record stands first." : "", "quiet");
    } catch (error) {
      if (!isWanted()) return;
      tell("", "quiet");
      place.replaceChildren(element("p", { class: "bad", role: "alert" }, error.message));
    }
    more.disabled = isLoading = false;
  }

  let isAsking = false;
  async function tail() {
    const end = live.partition(topic, number)?.leading;
    if (follow.checked && !isLoading) { if (leaderTrouble(live, topic, number)) tellWhy(); else if (state.className === "warn") tell("The newest record stands first.", "quiet"); }
    // The picture says whether there is something new: else nothing is asked.
    if (!follow.checked || isAsking || document.hidden || !end || end.highWatermark <= shownTo) return;
    isAsking = true;
    const mine = run;
    try {
      const found = await query(String(shownTo));
      if (mine === run && follow.checked) {
        const shown = found.records.map(recordCard).reverse();
        if (shown.length) { place.querySelector(":scope > p")?.remove(); place.prepend(...shown); }
        while (place.children.length > FOLLOWED_MAX) place.lastChild.remove();
        shownTo = found.next;
        tell("The newest record stands first.", "quiet");
      }
    } catch (error) {
      if (error instanceof NotNow) tellWhy(error); else tell(error.message, "bad");
    }
    isAsking = false;
  }

  load("latest", false);
  const timer = setInterval(tail, FOLLOW_MS);
  const stop = live.listen(() => { if (isLoading) tellWhy(); });
  return () => { hasLeft = true; clearInterval(timer); stop(); };
}

function formOf(part) {
  return element("select", { name: part }, FORMS.map(([form, name]) => element("option", { value: form }, name)));
}

function recordCard(record) {
  return element("article", { class: "card" },
    element("div", { class: "row quiet" }, element("strong", {}, `offset ${record.offset}`),
      record.timestamp >= 0 ? new Date(record.timestamp).toISOString() : "no time"),
    record.key && element("div", { class: "key" }, element("span", { class: "quiet" }, "key "), element("code", {}, record.key.text), length(record.key), reading(record.key)),
    record.headers.map(([name, value]) => element("div", {}, element("span", { class: "quiet" }, `header ${name} `), element("code", {}, value?.text ?? "null"))),
    record.value ? [reading(record.value, "value "), element("pre", {}, record.value.text, length(record.value))] : element("em", { class: "quiet" }, "null (a tombstone)"));
}

function length(part) {
  return part.size ? element("span", { class: "quiet" }, ` … of ${part.size} bytes`) : null;
}

// What it was read with, or why it was not.
function reading(part, name = " ") {
  if (part.schema) return [element("span", { class: "quiet" }, name), element("span", { class: "badge quiet" }, `Avro, ${part.schema}`)];
  return part.reason && element("div", { class: "warn" }, part.reason);
}
