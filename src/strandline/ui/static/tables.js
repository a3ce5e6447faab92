// Tables: how far each is beside the ends of its logs, its last commits, and its dead letters.
import { clock, count, element, size, since, table } from "./dom.js";
import { repeatedly } from "./lists.js";

export function tables(into) {
  const place = element("div"), closed = new Set(); // what is drawn anew stays closed
  into.replaceChildren(element("h1", {}, "Tables"), place);
  return repeatedly(place, "/api/tables", (found) => drawing(found, closed));
}

function drawing(found, closed) {
  if (!found.directory) return element("p", { class: "quiet" }, "This page was started without tables: ", element("code", {}, "strandline ui --tables DIRECTORY"), " shows them.");
  if (!found.tables.length) return element("p", { class: "quiet" }, `There are no tables in ${found.directory}.`);
  return element("div", {}, found.tables.map((each) => one(each, closed)),
    found.left_out > 0 && element("p", { class: "quiet" }, `${count(found.left_out)} more are not shown.`));
}

function one(each, closed) {
  const about = `${each.format}, ${each.mode}, of ${each.topics.join(", ") || "queries"}, in ${each.location}`;
  const ontoggle = (event) => { if (event.target.open) closed.delete(each.name); else closed.add(each.name); };
  return element("details", { class: "card", open: !closed.has(each.name), "aria-label": `Table ${each.name}`, ontoggle },
    element("summary", {}, element("strong", {}, each.name), " ", state(each)),
    element("p", { class: "quiet" }, about),
    each.trouble && element("p", { class: "bad", role: "alert" }, each.trouble),
    each.commits && (each.topics.length ? [held(each), partitions(each), commits(each), letters(each)] : [held(each), commits(each)]));
}

function state(each) {
  if (each.trouble) return element("span", { class: "badge bad" }, "trouble");
  if (!each.topics.length) return element("span", { class: "badge" }, "filled by queries");
  if (!each.lag.records) return element("span", { class: "badge good" }, "nothing is missing");
  const age = each.lag.seconds === null ? "" : `, the oldest for ${since(each.lag.seconds * 1000)}`;
  return element("span", { class: "badge warn" }, `${count(each.lag.records)} behind${age}`);
}

function held(each) {
  return table(["What", "#Rows", "#Files", "#Size"], Object.entries(each.held).map(([side, sum]) =>
    [side.replaceAll("_", " "), count(sum.rows), count(sum.files), size(sum.bytes)]));
}

function partitions(each) {
  return element("section", { "aria-label": `Frontier of ${each.name}` }, element("h2", {}, "Frontier, beside the log's end"),
    table(["Topic", "#Partition", "#From", "#Frontier", "#Log end", "#Behind", "Held"], each.partitions.map(([topic, partition, start, end, behind]) =>
      [topic, String(partition), count(start), count(end), behind === null ? null : count(end + behind), count(behind), bar(start, end, behind)])));
}

// How much of what the log has from the table's first offset on is in the table.
function bar(start, end, behind) {
  if (behind === null) return null;
  const label = behind ? `${count(behind)} behind` : "up to date";
  return element("progress", { max: Math.max(1, end + behind - start), value: behind ? end - start : Math.max(1, end - start), "aria-label": label, title: label });
}

function commits(each) {
  return element("section", { "aria-label": `Commits of ${each.name}` }, element("h2", {}, "Last commits"),
    each.commits.length === 0 ? element("p", { class: "quiet" }, "There are none yet.") :
    table(["#Commit", "Time", "Kind", "#Rows", "#Late", "#Dead", "#Offsets"], each.commits.map((commit) =>
      [count(commit.commit), moment(commit.at_ms), commit.kind, count(commit.rows), count(commit.late), count(commit.dead), count(commit.offsets)])));
}

function letters(each) {
  const classes = Object.entries(each.letters.classes);
  if (!classes.length) return element("p", { class: "quiet" }, "There are no dead letters.");
  return element("section", { "aria-label": `Dead letters of ${each.name}` },
    element("h2", {}, "Dead letters: ", classes.map(([name, number]) => `${count(number)} ${name}`).join(", ")),
    table(["Topic", "#Partition", "#Offset", "Time", "Class", "Reason"], each.letters.newest.map((letter) =>
      [letter.topic, String(letter.partition), count(letter.offset), letter.at_ms === null ? null : moment(letter.at_ms), letter.class, letter.error])));
}

function moment(milliseconds) {
  return `${new Date(milliseconds).toISOString().slice(0, 10)} ${clock(milliseconds).slice(0, 8)}`;
}
