// Groups with lag, open transactions, the truncation ledger, and answers to "why?".
import { lagChart } from "./charts.js";
import { NotNow, ask, clock, count, element, size, table, withCode } from "./dom.js";
import { resetForm } from "./edit.js";
import { told } from "./sentences.js";

const REFRESH_MS = 3000;

// Ask again and again, and draw what comes; returns how to end it. What the cluster cannot say now is drawn as it was.
export async function repeatedly(into, path, drawing) {
  let last = "";
  const waits = element("p", { class: "warn", role: "status" });
  const place = element("div");
  into.replaceChildren(waits, place);
  async function once() {
    try {
      const found = await ask(path);
      const text = JSON.stringify(found);
      if (text !== last) { last = text; place.replaceChildren(drawing(found)); }
      waits.textContent = "";
    } catch (error) {
      if (error instanceof NotNow) { waits.textContent = `${error.message} ${last ? "Below is what was heard before. " : ""}This page asks again by itself.`; return; }
      last = "";
      waits.textContent = "";
      place.replaceChildren(element("p", { class: "bad", role: "alert" }, error.message));
    }
  }
  await once();
  const timer = setInterval(() => { if (!document.hidden) once(); }, REFRESH_MS);
  return () => clearInterval(timer);
}

// Groups keep their elements while the page is open, and with them what is open or typed there.
export async function groups(into) {
  const place = element("div"), drawn = new Map();
  const chart = lagChart();
  into.replaceChildren(element("h1", {}, "Groups"), place, element("h2", {}, "Over time"), chart.element);
  const leave = await repeatedly(place, "/api/groups", (found) => {
    const names = new Set(found.groups.map((each) => each.group));
    for (const name of drawn.keys()) if (!names.has(name)) drawn.delete(name);
    return element("div", {}, found.groups.length === 0 ? element("p", { class: "quiet" }, "There are no groups.") : found.groups.map((group) => {
      if (!drawn.has(group.group)) drawn.set(group.group, groupCard(group));
      return drawn.get(group.group)(group);
    }));
  });
  return () => { leave(); chart.leave(); };
}

function groupCard({ group: name, type, partitions }) {
  const head = element("span"), rows = element("div");
  const card = element("details", { class: "card" }, element("summary", {}, element("strong", {}, name), " ", head), rows, resetForm(name, [...new Set(partitions.map(([topic]) => topic))]));
  return (group) => {
    head.textContent = [type && `${type} group`, group.state.toLowerCase(), `lag ${count(group.lag)}`].filter(Boolean).join(", ");
    rows.replaceChildren(type === "share" ?
      table(["Topic", "#Partition", "#Start", "#Lag"], group.partitions.map(([topic, partition, start, , lag]) => [topic, String(partition), count(start), count(lag)])) :
      table(["Topic", "#Partition", "#Committed", "#End", "#Lag"], group.partitions.map(([topic, partition, committed, end, lag]) => [topic, String(partition), count(committed), count(end), count(lag)])));
    return card;
  };
}

export function transactions(into) {
  const place = element("div");
  into.replaceChildren(element("h1", {}, "Transactions"), element("p", { class: "quiet" }, withCode("What is open, and where readers of committed records wait for it. `strandline transactions` shows more, and ends what hangs.")), place);
  return repeatedly(place, "/api/transactions", (found) => {
    const names = new Map(found.transactions.map((each) => [each.producer, each.transactional_id]));
    return element("div", {},
      found.transactions.length === 0 ? element("p", { class: "quiet" }, "No transaction is open.") :
        table(["Id", "State", "Since", "#Producer", "#Epoch", "#Coordinator", "Partitions"], found.transactions.map((each) => [
          element("strong", {}, each.transactional_id), each.state, each.since_wall_ms === null ? "" : moment(each.since_wall_ms),
          String(each.producer), String(each.epoch), String(each.coordinator), each.partitions.map(([topic, partition]) => `${topic}/${partition}`).join(" ")])),
      found.waiting.length > 0 && element("h2", {}, "Where readers wait"),
      found.waiting.length > 0 && table(["Topic", "#Partition", "#Last stable", "#High watermark", "For"], found.waiting.map(([topic, partition, stable, high, producer]) => [
        topic, String(partition), count(stable), count(high),
        producer === null ? "the end of a transaction to be replicated" : names.get(producer) ?? element("span", { class: "bad" }, `producer ${producer}, of which no coordinator says that it has one open`)])));
  });
}

export function ledger(into) {
  const place = element("div");
  into.replaceChildren(element("h1", {}, "Truncation ledger"), element("p", { class: "quiet" }, withCode("What replicas have cut off their logs is copied aside first. `strandline ledger` shows, compares and recovers it.")), place);
  return repeatedly(place, "/api/ledger", (found) => {
    const silent = Object.entries(found.brokers).filter(([, told]) => told.error).map(([broker, told]) => element("p", { class: "bad" }, `Broker ${broker}: ${told.error}`));
    const entries = Object.values(found.brokers).flatMap((told) => told.entries ?? []).sort((a, b) => b.wall_ms - a.wall_ms);
    if (!entries.length) return element("div", {}, silent, element("p", { class: "quiet" }, "Nothing was cut off."));
    return element("div", {}, silent, table(["Id", "#Broker", "Topic", "#Partition", "Offsets", "Epochs", "#Size", "When", "Why"], entries.map((entry) => [
      element("code", {}, entry.id), String(entry.broker), entry.topic, String(entry.partition),
      [`${entry.from_offset} to ${entry.to_offset - 1}`, committed(entry)].filter(Boolean),
      entry.epochs.map((each) => each.join(":")).join(" "), size(entry.size_bytes), moment(entry.wall_ms),
      entry.reason + (entry.unclean ? " (after an unclean election)" : "")])));
  });
}

// What a replica knows of the high watermark is a lower bound: above it there may be committed records, too.
function committed(entry) {
  if (entry.from_offset < entry.high_watermark) return element("div", { class: "bad" }, "committed ones among them");
  return entry.unclean && element("div", { class: "bad" }, "perhaps committed ones among them");
}

export function why(into) {
  const place = element("div");
  into.replaceChildren(element("h1", {}, "Why?"), element("p", { class: "quiet" }, "What is refused or waits, what the cause is, and what ends it."), place);
  return repeatedly(place, "/api/why", answers);
}

const ALIKE = 3; // so many findings about several things, but of one cause, have a card each
const TOLD_MAX = 200; // by one broker (why/subject.py)
const ALIKE_MAX = 100; // listed in the card of more of them
const opened = new Set(); // what is drawn anew stays open

// The findings of all brokers; the same one of several brokers is told once, and one cause of many things as well.
export function answers(found) {
  const all = new Map();
  for (const [broker, each] of Object.entries(found.brokers)) {
    if (each.error) { all.set(`silent ${broker}`, { brokers: [broker], finding: { title: "A broker does not answer", about: "", cause: each.error, evidence: [], settings: [], errors: [] } }); continue; }
    for (const finding of each.findings) {
      const key = `${finding.rule}\n${finding.about}\n${finding.cause}`;
      if (all.has(key)) all.get(key).brokers.push(broker); else all.set(key, { brokers: [broker], finding });
    }
  }
  if (!all.size) return element("p", { class: "good" }, told("Nothing is refused, and nothing waits."));
  const byCause = new Map();
  for (const each of all.values()) {
    const key = `${each.finding.rule}\n${each.finding.cause}`;
    if (byCause.has(key)) byCause.get(key).push(each); else byCause.set(key, [each]);
  }
  const isCut = Object.values(found.brokers).some((each) => each.findings?.length >= TOLD_MAX);
  return element("div", {}, [...byCause].map(([key, alike]) => alike.length > ALIKE ? answer(alike, key) : alike.map((each) => answer([each], key))),
    isCut && element("p", { class: "quiet" }, `A broker tells ${TOLD_MAX} answers at most: there may be more.`));
}

// One finding, or several of one cause: what each is about is then folded up.
function answer(alike, key) {
  const [{ finding }] = alike;
  const brokers = [...new Set(alike.flatMap((each) => each.brokers))];
  const times = alike.map((each) => each.finding.since_wall_ms).filter(Boolean);
  const about = alike.length > 1 ? `${finding.about} … (${count(alike.length)})` : finding.about;
  return element("article", { class: "card" },
    element("div", {}, element("strong", {}, told(finding.title ?? "Refused")), about ? `: ${about}` : "", " ", finding.errors.map((each) => [element("span", { class: "badge quiet" }, each), " "])),
    element("p", {}, withCode(told(finding.cause))),
    element("p", { class: "quiet" }, [told(`Said by broker ${brokers.join(", ")}`), ...(times.length ? [told(`since ${moment(Math.min(...times))}`)] : [])].join(", ")),
    alike.length > 1 ? eachOf(alike, key) : evidence(finding),
    finding.remedy && element("p", {}, element("strong", {}, told("What ends it: ")), withCode(told(finding.remedy))),
    finding.settings.length > 0 && element("p", { class: "quiet" }, told(`Settings: ${finding.settings.join(", ")}`)));
}

function evidence(finding) {
  return finding.evidence.length > 0 && element("ul", { class: "events" }, finding.evidence.map((each) => element("li", {}, withCode(told(each)))));
}

function eachOf(alike, key) {
  const ontoggle = (event) => { if (event.target.open) opened.add(key); else opened.delete(key); };
  return element("details", { open: opened.has(key), ontoggle }, element("summary", {}, `All ${count(alike.length)}`),
    alike.slice(0, ALIKE_MAX).map(({ finding }) => [element("div", {}, finding.about), evidence(finding)]),
    alike.length > ALIKE_MAX && element("p", { class: "quiet" }, `${count(alike.length - ALIKE_MAX)} more are not shown.`));
}

function moment(milliseconds) {
  return `${new Date(milliseconds).toISOString().slice(0, 10)} ${clock(milliseconds)} UTC`;
}
