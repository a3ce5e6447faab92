// The record browser: from an offset, a time or the end; of one key; decoded as somebody wants it; page after page.
import { ask, element } from "./dom.js";

const FORMS = [["auto", "as they look"], ["json", "JSON"], ["text", "text"], ["bytes", "bytes"], ["avro", "Avro"]];

export async function records(into, live, topic, number) {
  const at = element("select", { "aria-label": "From where" },
    element("option", { value: "latest" }, "the last ones"), element("option", { value: "earliest" }, "the first ones"),
    element("option", { value: "offset" }, "from offset"), element("option", { value: "time" }, "from time (UTC)"));
  const value = element("input", { "aria-label": "Offset or time", hidden: true });
  const key = element("input", { placeholder: "any key", "aria-label": "Of this key only" });
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
    at, value, key, element("label", {}, "keys ", forms.keys), element("label", {}, "values ", forms.values),
    element("label", { for: "committed" }, committed, " committed only"), element("button", {}, "Show"));
  into.replaceChildren(element("h1", {}, `Records of ${topic}, partition ${number}`),
    element("p", {}, element("a", { href: `#/topics/${encodeURIComponent(topic)}/${number}` }, "Its replicas")), form, place, more);

  function where() {
    if (at.value === "offset") return value.value || "0";
    if (at.value === "time") return `time:${Date.parse(`${value.value || "1970-01-01T00:00"}Z`)}`;
    return at.value;
  }

  async function load(from, isMore) {
    more.disabled = true;
    const query = new URLSearchParams({ at: from, limit: 50, keys: forms.keys.value, values: forms.values.value });
    if (key.value) query.set("key", key.value);
    if (committed.checked) query.set("committed", "1");
    try {
      const found = await ask(`/api/topics/${encodeURIComponent(topic)}/${number}/records?${query}`);
      const shown = found.records.map(recordCard);
      if (isMore) place.append(...shown); else place.replaceChildren(...shown);
      if (!isMore && !shown.length) place.replaceChildren(element("p", { class: "quiet" }, `Nothing from ${found.from} to ${found.next}.`));
      more.hidden = found.next >= found.end;
      more.dataset.next = String(found.next);
    } catch (error) {
      place.replaceChildren(element("p", { class: "bad", role: "alert" }, error.message));
    }
    more.disabled = false;
  }
  await load("latest", false);
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
