// Scenarios: a document of steps, shown one moment at a time, all rules side by side.
import { ask, element, tell } from "./dom.js";
import { labLink } from "./links.js";
import { told } from "./sentences.js";
import { legend, strip } from "./strips.js";

export async function scenarioList(into) {
  const listed = await ask("/api/scenarios");
  into.replaceChildren(
    element("h1", {}, "Scenarios"),
    element("p", { class: "quiet" }, "The classical accidents of replication, played on the real replication code."),
    ...listed.groups.map((group) => element("section", { class: "card scenarios", "aria-label": group.group },
      element("h2", {}, group.group), element("p", { class: "quiet" }, group.about),
      element("ul", {}, group.scenarios.map((each) => element("li", {},
        element("a", { href: `#/scenarios/${each.name}` }, each.name.replaceAll("-", " ")),
        each.aliases.length > 0 && element("span", { class: "quiet" }, ` ${each.aliases.join(" ")}`),
        element("div", { class: "quiet" }, each.title)))))),
    element("p", {}, element("a", { href: "#/scenarios/own" }, "Write one of your own"), ", go step by step in the ", element("a", { href: "#/lab" }, "lab"), ", or open a document: ",
      element("input", { type: "file", accept: ".json,.txt", "aria-label": "A script or a document",
        onchange: (event) => opened(into, event.target.files[0]) })));
}

export async function scenario(into, name) {
  if (name === "own") return own(into, OWN);
  const shown = await ask(`/api/scenarios/${encodeURIComponent(name)}`);
  return show(into, shown);
}

const OWN = `title: Mine
replicas: A B C
min-in-sync: 2
policy: truncate=leader-epoch|high-watermark

produce A m0 m1 acks=all
fetch B
fetch C
fetch B
fetch C
kill A
elect B
produce B m2 acks=all
start A
fetch A
fetch A
`;

function own(into, text) {
  const area = element("textarea", { "aria-label": "The script", spellcheck: "false" });
  area.value = text;
  const said = element("p", { class: "bad", role: "alert" });
  const place = element("div");
  const play = element("button", { onclick: async () => {
    play.disabled = true;
    said.textContent = "";
    try {
      show(place, await tell("/api/scenarios", { text: area.value }));
    } catch (error) {
      said.textContent = error.message;
    } finally {
      play.disabled = false;
    }
  } }, "Play");
  into.replaceChildren(element("h1", {}, "A script of your own"), element("div", { class: "card" }, area, element("p", { class: "row" }, play), said), place);
}

async function opened(into, file) {
  const text = await file.text();
  if (file.name.endsWith(".txt")) return own(into, text);
  let shown = null;
  try { shown = JSON.parse(text); } catch { /* said below */ }
  if (shown?.format !== "strandline-play" || shown.version !== 1 || !shown.runs?.every((run) => run.frames?.length)) {
    into.prepend(element("p", { class: "bad", role: "alert" }, `${file.name} is no scenario document of version 1.`));
    return undefined;
  }
  return show(into, shown);
}

function show(into, shown) {
  const lines = [...new Set(shown.runs.flatMap((run) => run.frames.map((frame) => frame.line)))].sort((a, b) => a - b);
  let at = 0;
  const place = element("div");
  const slider = element("input", { class: "time", type: "range", min: 0, max: lines.length - 1, value: 0, "aria-label": "Step",
    oninput: () => go(Number(slider.value)) });
  const said = element("span", { class: "quiet", "aria-live": "polite" });
  const back = element("button", { onclick: () => go(at - 1) }, "← Back");
  const on = element("button", { onclick: () => go(at + 1) }, "Next →");
  const controls = element("div", { class: "card" }, element("div", { class: "row" }, back, on, said), slider);

  function go(to) {
    at = Math.max(0, Math.min(lines.length - 1, to));
    slider.value = at;
    back.disabled = at === 0;
    on.disabled = at === lines.length - 1;
    said.textContent = `Step ${at} of ${lines.length - 1}`;
    const before = lines[Math.max(0, at - 1)];
    place.replaceChildren(step(shown, lines[at]), element("div", { class: "runs" }, shown.runs.map((run) => runAt(run, lines[at], before, at === lines.length - 1 && !shown.is_recording))));
  }

  controls.addEventListener("keydown", onKey);
  place.addEventListener("keydown", onKey);
  function onKey(event) {
    if (event.target === slider) return; // it has keys of its own, the same ones
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: lines.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); go(to); }
  }
  const inLab = shown.text && element("p", {}, element("a", { href: labLink(shown.text) }, "Go on with it in the lab"));
  into.replaceChildren(...[element("h1", {}, shown.title), legend(), controls, place, inLab].filter(Boolean));
  go(0);
  slider.focus({ preventScroll: true });
}

export function frameAt(run, line) {
  let found = run.frames[0];
  for (const frame of run.frames) { if (frame.line > line) break; found = frame; }
  return found;
}

export function step(shown, line) {
  const frame = shown.runs.map((run) => frameAt(run, line)).find((each) => each.line === line);
  return element("div", { class: "card" },
    (frame?.notes ?? []).map((note) => element("div", { class: "quiet" }, `# ${note}`)),
    element("pre", {}, !frame || line === 0 ? told("the beginning") : frame.text),
    frame?.meaning && element("p", { class: "meaning" }, told(frame.meaning)));
}

// `says`: whether there is a script that says how it is to end; in the lab it is still being written.
export function runAt(run, line, before, isLast, says = true) {
  const frame = frameAt(run, line);
  const here = frame.line === line;
  const rules = Object.entries(run.policy).map(([name, value]) => `${name}=${value}`).join(", ");
  const earlier = new Map(frameAt(run, before).replicas.map((each) => [each.name, new Set((each.records ?? []).map((record) => record[0]))]));
  return element("section", { class: "card", "aria-label": rules || "The run" },
    rules && element("strong", {}, rules), !here && element("span", { class: "quiet" }, "  this step is not played under this rule"),
    frame.replicas.map((replica) => replicaRow(replica, earlier.get(replica.name) ?? new Set())),
    element("div", { class: "quiet" }, controllerText(frame.controller)),
    here && element("ul", { class: "events" },
      frame.events.map((each) => element("li", {}, told(each))),
      frame.violations.map((each) => element("li", { class: "bad" }, told(each))),
      frame.unmet.map((each) => element("li", { class: "bad" }, told(`not met: ${each}`))),
      frame.kind === "expect" && !frame.unmet.length ? element("li", { class: "good" }, told("as expected")) : null),
    isLast && ending(run, says));
}

function controllerText(state) {
  if (!state) return "";
  const eligible = state.eligible?.length ? `, eligible ${state.eligible.join("")}` : "";
  return told(`The controller: leader ${state.leader ?? "none"}, epoch ${state.leader_epoch}, in sync ${state.in_sync.join("") || "none"}${eligible}`);
}

function replicaRow(replica, seen) {
  if (replica.role === "down") {
    return element("div", { class: "replica" }, element("strong", {}, replica.name), element("span", { class: "quiet" }, told("down")));
  }
  const facts = [`log end ${replica.log_end}`, `high watermark ${replica.high_watermark}`];
  if (replica.last_stable < replica.high_watermark) facts.push(`last stable ${replica.last_stable}`);
  if (replica.log_start) facts.unshift(`start ${replica.log_start}`);
  facts.push(`epochs ${replica.epochs.map((each) => each.join(":")).join(" ") || "none"}`);
  if (replica.in_sync) {
    facts.push(`in sync ${replica.in_sync.join("")}${replica.change}`);
    for (const [name, end] of Object.entries(replica.remote)) facts.push(end < 0 ? `knows nothing of ${name}` : `knows ${name} at ${end}`);
  }
  if (replica.cut_off) facts.push("cut off");
  if (replica.paused) facts.push("paused");
  return element("div", { class: "replica" },
    element("span", {}, element("strong", {}, replica.name), ` ${told(replica.role)}`),
    strip(replica.records, replica, seen),
    element("span", { class: "facts" }, facts.map(told).join(" · ")));
}

function ending(run, says) {
  const broken = Object.entries(run.broken);
  return element("div", {},
    broken.map(([number, what]) => element("p", { class: "bad" }, told(`${number} is broken: ${what}`))),
    says && broken.length === 0 && element("p", { class: "good" }, told("No invariant was broken.")),
    says && !run.as_expected && element("p", { class: "bad" }, told("It did not go as the script says.")));
}
