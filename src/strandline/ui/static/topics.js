// Lists of topics and of a topic's partitions, however many there are.
import { ask, count, element, patiently, size, table } from "./dom.js";
import { produceForm } from "./edit.js";
import { ailment } from "./picture.js";
import { longTable } from "./rows.js";

const IN_SYNC = { text: "in sync", kind: "good" };

// The topics of the cluster, with what is wrong in them. Returns { element, redraw }.
export function topicList(live) {
  const summary = element("p", { class: "quiet summary", role: "status" });
  const rows = longTable("Topics", ["Topic", "State", "#Partitions", "#Offsets", "#Not committed", "#Size"], (topic) => topic.name, (topic) => [
    { text: topic.name, href: `#/topics/${encodeURIComponent(topic.name)}` },
    topic.ailing.size ? [...topic.ailing].map(([what, [number, kind]]) => ({ text: `${count(number)} ${what}`, kind: `badge ${kind}` })) : IN_SYNC,
    count(topic.partitions), count(topic.records), count(topic.behind), size(topic.bytes)]);
  const find = search("Find a topic", "Topics with …", () => redraw());
  const ailing = onlyAiling(() => redraw());

  function redraw() {
    const all = [...live.topics].map(([name, partitions]) => topicSum(name, partitions));
    const words = find.value.trim().toLowerCase();
    const shown = all.filter((topic) => topic.name.toLowerCase().includes(words) && (!ailing.checked || topic.ailing.size));
    say(summary, `${countOf(shown, all, "topic")} with ${plural(sum(shown, (topic) => topic.partitions), "partition")}, ${ailingText(sum(shown, (topic) => topic.wrong))}`);
    rows.show(shown);
  }

  return { redraw, element: element("section", { "aria-label": "Topics" },
    element("div", { class: "row head" }, element("h2", {}, "Topics"), find, ailing.label),
    element("div", { class: "card" }, summary, rows.element)) };
}

function topicSum(name, partitions) {
  const topic = { name, partitions: partitions.length, records: 0, behind: 0, bytes: 0, wrong: 0, ailing: new Map() };
  for (const each of partitions) {
    if (each.leading) {
      topic.records += each.leading.end - each.leading.start;
      topic.behind += each.leading.end - each.leading.highWatermark;
    }
    for (const copy of each.copies) topic.bytes += copy.size;
    const wrong = ailment(each);
    if (!wrong) continue;
    topic.wrong += 1;
    topic.ailing.set(wrong[0], [(topic.ailing.get(wrong[0])?.[0] ?? 0) + 1, wrong[1]]);
  }
  return topic;
}

export function topicView(into, live, topic) {
  const summary = element("p", { class: "quiet summary", role: "status" });
  const rows = longTable("Partitions", ["#Partition", "State", "#Leader", "#Epoch", "#Start", "#High watermark", "#Log end", "#Size", "Replicas", "In sync"], (each) => each.partition, (each) => {
    const wrong = ailment(each);
    return [{ text: String(each.partition), href: `#/topics/${encodeURIComponent(topic)}/${each.partition}` }, wrong ? { text: wrong[0], kind: wrong[1] } : IN_SYNC,
      each.leader === -1 ? "none" : String(each.leader), String(each.epoch), count(each.leading?.start), count(each.leading?.highWatermark), count(each.leading?.end), size(each.leading?.size),
      each.replicas.join(" "), (each.inSync ?? []).join(" ") || "–"];
  });
  const find = search("Find a partition", "Partition …", () => redraw());
  const ailing = onlyAiling(() => redraw());
  const settings = element("div", { class: "card quiet" }, "Loading …");
  into.replaceChildren(element("h1", {}, `Topic ${topic}`),
    element("div", { class: "row head" }, element("h2", {}, "Partitions"), find, ailing.label),
    element("div", { class: "card" }, summary, rows.element), produceForm(topic), element("h2", {}, "Settings"), settings);
  let hasLeft = false;
  patiently(() => ask(`/api/topics/${encodeURIComponent(topic)}/settings`), () => !hasLeft, (error) => { settings.textContent = `${error.message} This page asks again by itself.`; }).then(
    (found) => settings.replaceChildren(settingsTable(found.settings)),
    (error) => settings.replaceChildren(element("span", { class: "bad" }, error.message)));

  function redraw() {
    const all = live.topics.get(topic) ?? [];
    const shown = all.filter((each) => String(each.partition).startsWith(find.value.trim()) && (!ailing.checked || ailment(each)));
    say(summary, all.length ? `${countOf(shown, all, "partition")}, ${ailingText(shown.filter(ailment).length)}` : live.head ? "No broker has a replica of it." : "Loading …");
    rows.show(shown);
  }
  const stop = live.listen(redraw);
  return () => { hasLeft = true; stop(); };
}

function settingsTable(settings) {
  const own = settings.filter((each) => !each.source.startsWith("default") || each.value !== each.default);
  const name = (each) => each.about ? element("span", { title: each.about }, each.name) : each.name;
  const value = (each) => each.value !== each.default ? element("strong", { class: "differs" }, each.value) : each.value;
  const shown = (some) => table(["Setting", "Value", "Default", "Set by"], some.map((each) => [name(each), value(each), each.default, each.source.replaceAll("_", " ")]));
  return element("div", {},
    own.length ? [element("p", { class: "quiet" }, "What differs from the defaults:"), shown(own)] : element("p", { class: "quiet" }, "All settings are defaults."),
    element("details", {}, element("summary", {}, `All ${settings.length}`), shown(settings)));
}

function search(label, placeholder, changed) {
  return element("input", { type: "search", placeholder, "aria-label": label, oninput: changed });
}

function onlyAiling(changed) {
  const box = element("input", { type: "checkbox", onchange: changed });
  return { get checked() { return box.checked; }, label: element("label", {}, box, " only with problems") };
}

function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

function countOf(shown, all, what) {
  return (shown.length === all.length ? "" : `${count(shown.length)} of `) + plural(all.length, what);
}

function plural(number, what) {
  return `${count(number)} ${what}${number === 1 ? "" : "s"}`;
}

function ailingText(number) {
  return number ? `${count(number)} of them with something wrong` : "nothing wrong";
}

function sum(all, of) {
  return all.reduce((total, each) => total + of(each), 0);
}
