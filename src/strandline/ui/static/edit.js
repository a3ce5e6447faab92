// What the page may change when its server runs with --edit: produce a record, reset a group.
import { ask, count, element, table, tell } from "./dom.js";

let allowed = null; // asked once: it stays so while the server runs

function whenAllowed() {
  allowed ??= ask("/api/edit").then((found) => found.allowed, () => false);
  return allowed;
}

// A form to produce one record to a topic; empty where nothing may be changed.
export function produceForm(topic, number = null) {
  const place = element("div");
  whenAllowed().then((may) => { if (may) place.replaceChildren(producer(topic, number)); });
  return place;
}

function producer(topic, number) {
  const partition = element("input", { type: "number", min: 0, step: 1, value: number, placeholder: "by the key", size: 8 });
  const key = element("input", { placeholder: "none" });
  const value = element("textarea", { class: "short", spellcheck: "false" });
  const isNull = element("input", { type: "checkbox", onchange: () => { value.disabled = isNull.checked; } });
  const headers = element("input", { placeholder: "name=text, name=text" });
  const [said, wrong] = outcome();
  return element("details", { class: "card edit" }, element("summary", {}, "Produce a record"),
    element("form", { onsubmit: (event) => act(event, said, wrong, async () => {
      const pairs = headers.value.split(",").map((each) => each.trim()).filter(Boolean).map((each) => [each.split("=")[0].trim(), each.includes("=") ? each.slice(each.indexOf("=") + 1) : null]);
      const done = await tell(`/api/topics/${encodeURIComponent(topic)}/records`, {
        partition: partition.value === "" ? null : Number(partition.value), key: key.value === "" ? null : key.value, value: isNull.checked ? null : value.value, headers: pairs });
      return `Written to partition ${done.partition} at offset ${count(done.offset)}.`;
    }) },
    element("div", { class: "row" }, label("Partition", partition), label("Key", key), label("Headers", headers)),
    label("Value", value), element("div", { class: "row" }, element("label", {}, isNull, " no value (a tombstone)"), element("button", { class: "primary" }, "Produce"), said), wrong));
}

// A form to set the offsets of a group of one topic; `topics` are offered, others can be typed.
export function resetForm(group, topics) {
  const place = element("div");
  whenAllowed().then((may) => { if (may) place.replaceChildren(resetter(group, topics)); });
  return place;
}

function resetter(group, topics) {
  const topic = element("input", { value: topics[0] ?? "", required: true });
  const value = element("input", { type: "number", min: 0, step: 1, hidden: true, "aria-label": "Offset or time" });
  const to = element("select", { onchange: () => {
    value.hidden = !["offset", "time"].includes(to.value);
    value.type = to.value === "time" ? "datetime-local" : "number";
  } }, [["earliest", "the first record"], ["latest", "the end"], ["offset", "offset"], ["time", "time (UTC)"]].map(([each, name]) => element("option", { value: each }, name)));
  const [said, wrong] = outcome();
  const result = element("div");
  return element("details", { class: "edit" }, element("summary", {}, "Reset its offsets"),
    element("form", { onsubmit: (event) => act(event, said, wrong, async () => {
      const number = to.value === "time" ? Date.parse(`${value.value || "1970-01-01T00:00"}Z`) : Number(value.value || 0);
      const done = await tell(`/api/groups/${encodeURIComponent(group)}/offsets`, { topic: topic.value, to: to.value, value: value.hidden ? null : number });
      result.replaceChildren(table(["Topic", "#Partition", "#Before", "#After"], done.partitions.map(([name, at, before, after]) => [name, String(at), count(before), count(after)])));
      return "Done.";
    }) }, element("div", { class: "row" }, label("Topic", topic), label("To", to), value, element("button", { class: "primary" }, "Reset"), said), wrong, result));
}

function outcome() {
  return [element("span", { class: "good", role: "status" }), element("p", { class: "bad", role: "alert", hidden: true })];
}

function label(name, field) {
  return element("label", {}, `${name} `, field);
}

async function act(event, said, wrong, change) {
  event.preventDefault();
  const button = event.target.querySelector("button");
  button.disabled = true;
  said.textContent = "";
  wrong.hidden = true;
  try {
    said.textContent = await change();
  } catch (error) {
    wrong.textContent = error.message;
    wrong.hidden = false;
  }
  button.disabled = false;
}
