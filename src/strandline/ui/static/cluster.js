// The cluster, a topic, and one partition with a strip for each replica.
import { NotNow, ask, clock, count, element, since, table } from "./dom.js";
import { faults } from "./faults.js";
import { answers } from "./lists.js";
import { partitionMap } from "./map.js";
import { named } from "./picture.js";
import { longTable } from "./rows.js";
import { legend, strip } from "./strips.js";
import { topicList } from "./topics.js";

const CELL_PIXELS = 46; // at least; longer offsets need more
const DIGIT_PIXELS = 8;
const CELLS = [6, 40]; // at least, at most

export function cluster(into, live) {
  let leading = new Map();
  const brokers = longTable("Brokers", ["Broker", "State", "Address", "Rack", "#Leads", "#In, B/s", "#Out, B/s"], (broker) => broker.id, (broker) => brokerCells(broker, live, leading));
  const topics = topicList(live);
  const map = partitionMap(live);
  const accidents = element("section", { "aria-label": "Faults" });
  into.replaceChildren(element("h1", {}, "Cluster"), element("div", { class: "card" }, brokers.element), map.element, accidents, topics.element);
  const panel = faults(accidents, (id) => [live.head?.controller === id && "controller", leading.get(id) && `leads ${count(leading.get(id))}`].filter(Boolean).join(", "), element("h2", {}, "Faults"));
  const redraw = () => {
    if (!live.head) return;
    leading = leaderships(live);
    brokers.show(live.head.brokers);
    map.redraw();
    topics.redraw();
    panel.tellAbout();
  };
  const stop = live.listen(redraw);
  return () => { stop(); panel.leave(); };
}

function leaderships(live) {
  const leading = new Map();
  for (const each of live.partitions) leading.set(each.leader, (leading.get(each.leader) ?? 0) + 1);
  return leading;
}

function brokerCells(broker, live, leading) {
  const state = broker.error ? [broker.error, "bad"] : broker.is_shutting_down ? ["shutting down", "warn"] : ["answers", "good"];
  return [String(broker.id) + (broker.id === live.head.controller ? " (controller)" : ""), { text: state[0], kind: state[1] },
    broker.host ? `${broker.host}:${broker.port}` : null, broker.rack, count(leading.get(broker.id) ?? 0),
    broker.rates && count(Math.round(broker.rates.bytes_in)), broker.rates && count(Math.round(broker.rates.bytes_out))];
}

export function partitionView(into, live, topic, number) {
  const place = element("div");
  const facts = element("div");
  const reasons = element("div");
  let panel = null; // made when it is opened
  const accidents = element("details", { class: "accidents", ontoggle: () => {
    if (!accidents.open || panel) return;
    const inside = accidents.appendChild(element("section", { "aria-label": "Faults" }));
    panel = faults(inside, (id) => roleOf(live.partition(topic, number), id));
  } }, element("summary", {}, "Faults"));
  let past = null;
  let isNow = true; // as the slider stands; `past` comes a little later
  const slider = element("input", { class: "time", type: "range", min: 0, max: 0, "aria-label": "Time" });
  const now = element("button", { onclick: () => { past = null; isNow = true; slider.value = slider.max; redraw(); } }, "Now");
  const when = element("span", { class: "quiet", "aria-live": "polite" });
  let moments = [];
  slider.addEventListener("input", async () => {
    const at = Number(slider.value);
    isNow = at >= moments.length - 1;
    if (isNow) { past = null; redraw(); return; }
    const wanted = moments[at][0];
    const found = await ask(`/api/moments/${wanted}?topic=${encodeURIComponent(topic)}&partition=${number}`).catch((error) => { when.textContent = error.message; return null; });
    if (found && !isNow && moments[Number(slider.value)]?.[0] === wanted) { past = found; redraw(); }
  });
  into.replaceChildren(
    element("h1", {}, `${topic}, partition ${number}`),
    element("p", { class: "row" }, element("a", { href: `#/topics/${encodeURIComponent(topic)}` }, "The topic"), element("a", { href: `#/topics/${encodeURIComponent(topic)}/${number}/records` }, "Its records")),
    legend(), place, accidents,
    element("div", { class: "card" }, element("div", { class: "row" }, element("strong", {}, "Time"), now, when), slider),
    element("h2", {}, "Why?"), reasons, facts);

  let drawn = "";
  let width = 0;
  function redraw() {
    const shown = past ? past.partitions.map(named).find((each) => each.topic === topic && each.partition === number) ?? null : live.partition(topic, number);
    const head = past ?? live.head;
    when.textContent = head ? `${past ? "seen at" : "now,"} ${clock(head.wall_ms)} UTC` : "";
    const text = JSON.stringify(shown);
    if (text === drawn && place.clientWidth === width) return; // nothing changed, and the focus stays where it is
    drawn = text;
    width = place.clientWidth;
    place.replaceChildren(shown ? partitionCard(shown, cellsThatFit(place, Math.max(0, ...shown.copies.map((copy) => copy.end)))) : element("p", { class: "quiet" }, "No broker has a replica of it."));
  }

  async function refreshMoments() {
    const last = moments.at(-1)?.[0] ?? 0;
    const found = await ask(`/api/moments?after=${last}`).catch(() => null);
    if (!found || (moments.at(-1)?.[0] ?? 0) !== last) return; // or another answer came first
    const shown = moments[Number(slider.value)]?.[0];
    const isAnew = found.moments.length > 0 && found.moments[0][0] <= last; // another server counts
    moments = [...(isAnew ? [] : moments.filter(([each]) => each >= found.oldest)), ...found.moments];
    slider.max = Math.max(0, moments.length - 1);
    // The oldest moments go: the slider stays at the moment that it shows.
    const at = moments.findIndex((moment) => moment[0] === shown);
    slider.value = isNow ? slider.max : Math.max(0, at);
  }

  let said = "";
  let isAsking = false;
  async function refreshFacts() {
    if (isAsking) return;
    isAsking = true;
    const asked = `topic=${encodeURIComponent(topic)}&partition=${number}`;
    const [found, told] = await Promise.all([`/api/topics/${encodeURIComponent(topic)}/${number}`, `/api/why?${asked}`].map((path) => ask(path).catch((error) => ({ error: error.message, how: error instanceof NotNow ? "warn" : "bad" }))));
    isAsking = false;
    if (JSON.stringify(told) !== said) {
      said = JSON.stringify(told);
      reasons.replaceChildren(told.error ? element("p", { class: told.how }, told.error) : answers(told));
    }
    if (facts.querySelector("details[open]")) return; // it is being read
    facts.replaceChildren(found.error ? element("p", { class: found.how }, found.error) : detail(found.brokers, live.partition(topic, number)?.leader));
  }

  // A paused broker answers late: the strips do not wait for it.
  const refresh = () => { if (document.hidden) return; refreshMoments(); if (past === null) refreshFacts(); };
  refresh();
  const timer = setInterval(refresh, 2000);
  const stop = live.listen(() => { redraw(); panel?.tellAbout(); });
  return () => { clearInterval(timer); stop(); panel?.leave(); };
}

// So many cells that the marks behind them are to be seen as well.
function cellsThatFit(place, last) {
  const beside = window.matchMedia("(max-width: 40rem)").matches ? 60 : 270;
  return Math.min(CELLS[1], Math.max(CELLS[0], Math.floor((place.clientWidth - beside) / Math.max(CELL_PIXELS, 14 + DIGIT_PIXELS * String(last).length))));
}

function partitionCard(shown, cells) {
  const ends = shown.copies.map((copy) => copy.end);
  const last = Math.max(...ends, 0);
  const first = Math.max(last - cells, 0);
  return element("div", { class: "card" },
    element("p", {}, `Leader ${shown.leader === -1 ? "none" : shown.leader}, epoch ${shown.epoch}, replicas ${shown.replicas.join(" ")}, in sync ${(shown.inSync ?? []).join(" ") || "unknown"}`),
    shown.replicas.map((broker) => {
      const copy = shown.copies.find((each) => each.broker === broker);
      if (!copy) return element("div", { class: "replica" }, element("strong", {}, `Broker ${broker}`), element("span", { class: "quiet" }, "does not answer"));
      return copyRow(shown, copy, first, last);
    }));
}

function roleOf(partition, broker) {
  if (!partition?.replicas.includes(broker)) return "no replica";
  return broker === partition.leader ? "leader" : (partition.inSync ?? []).includes(broker) ? "in sync" : "not in sync";
}

function copyRow(shown, copy, first, last) {
  const role = roleOf(shown, copy.broker);
  const cells = [];
  for (let offset = Math.max(first, copy.start); offset < copy.end; offset += 1) cells.push([offset, epochOf(copy.epochs, offset), null]);
  const facts = [`start ${count(copy.start)}`, `high watermark ${count(copy.highWatermark)}`, `last stable ${count(copy.lastStable)}`, `log end ${count(copy.end)}`,
    `epochs ${copy.epochs.map((each) => each.join(":")).join(" ") || "none"}`];
  if (copy.end < last) facts.push(`${count(last - copy.end)} behind`);
  return element("div", { class: "replica" },
    element("span", {}, element("strong", {}, `Broker ${copy.broker}`), " ", element("span", { class: role === "not in sync" ? "warn" : "quiet" }, role)),
    copy.isOffline ? element("span", { class: "bad" }, copy.reason ?? "offline") : strip(cells, { last_stable: copy.lastStable, high_watermark: copy.highWatermark, log_end: copy.end }),
    element("span", { class: "facts" }, facts.join(" · ")));
}

function epochOf(epochs, offset) {
  let found = 0;
  for (const [epoch, start] of epochs) if (start <= offset) found = epoch;
  return found;
}

// What stands behind the strips: the leader's view of its followers, what changed and why, who waits.
function detail(brokers, leader) {
  const told = Object.values(brokers).filter((each) => !each.error);
  // A former leader that was cut off may still believe that it leads.
  const leading = [brokers[leader], ...told].map((each) => each?.replicas?.[0]).find((replica) => replica?.leading);
  const changes = (brokers[leader]?.changes ?? told[0]?.changes ?? []).filter((each) => each.topic !== null).reverse();
  const parked = told.flatMap((each) => each.parked.map((request) => [each.broker, request]));
  const refusals = told.flatMap((each) => each.refusals.map((refusal) => [each.broker, refusal]));
  return element("div", {},
    leading && section("What the leader knows of its followers", table(["#Broker", "#Log end", "#Lag", "In sync", "#Caught up ago", "#Fetched ago"], leading.leading.followers.map((each) =>
      [String(each.broker), count(each.log_end_offset), count(each.lag), each.in_sync ? "yes" : "no", ago(each.caught_up_ago_ms), ago(each.fetched_ago_ms)])),
      leading.leading.low_watermark != null && element("p", { class: "quiet" }, `Low watermark ${count(leading.leading.low_watermark)}: every replica that may lead begins there or later.`)),
    changes.length > 0 && section("What changed, and why", table(["When (UTC)", "What", "#Epoch", "Before", "After", "Why"], changes.slice(0, 30).map((each) =>
      [clock(each.wall_ms), each.kind.replaceAll("_", " "), count(each.epoch), each.before.join(" ") || "none", each.after.join(" ") || "none", each.reason]))),
    parked.length > 0 && section("Who waits, and for what", table(["#Broker", "Request", "Client", "Waits for", "#At most"], parked.slice(0, 50).map(([broker, each]) =>
      [String(broker), each.api, `${each.client_id} at ${each.client_host}`, each.waits_for, since(each.deadline_wait_ms)]))),
    refusals.length > 0 && section("What was refused", table(["#Broker", "Error", "Request", "#Times", "Last (UTC)", "What was said"], refusals.map(([broker, each]) =>
      [String(broker), each.error, each.api, count(each.count), clock(each.last_wall_ms), each.message ?? ""]))),
    element("h2", {}, "All that the brokers say"),
    Object.entries(brokers).map(([broker, each]) => element("details", { class: "card" }, element("summary", {}, `Broker ${broker}`),
      each.error ? element("p", { class: "bad" }, each.error) : element("pre", {}, JSON.stringify(each.replicas[0] ?? null, null, 2)))));
}

function section(title, ...content) {
  return [element("h2", {}, title), element("div", { class: "card" }, ...content.filter(Boolean))];
}

function ago(milliseconds) {
  return milliseconds === null ? "never" : since(milliseconds);
}
