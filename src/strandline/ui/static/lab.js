// The lab: a small cluster of which a person says step by step what happens to it. All that was done is a
// script, which the address carries: who opens that sees the same run.
import { element, tell } from "./dom.js";
import { labLink } from "./links.js";
import { answers } from "./lists.js";
import { frameAt, runAt, step } from "./player.js";
import { actionOf, header, nextValue, START, withHeader, withLine, withoutLast } from "./script.js";
import { told } from "./sentences.js";
import { legend } from "./strips.js";
import { word } from "./words.js";

const SPEEDS = [["0.5", "0.5 steps/s"], ["1", "1 step/s"], ["3", "3 steps/s"], ["10", "10 steps/s"]];
const RULES = [
  ["truncate", "A replica that comes back truncates by", [["leader-epoch", "leader epoch"], ["high-watermark", "high watermark (before Kafka 0.11)"]]],
  ["eligible", "Eligible leader replicas", [["yes", "on"], ["no", "off (before KIP-966)"]]],
  ["unclean", "Unclean elections", [["no", "off"], ["yes", "on"]]],
];

export async function lab(into, fragment) {
  const made = table(into);
  await made.play(fragment || START);
  return made.leave;
}

// `changed(shown, text)` is told of every new document, for lessons; these have no link and may have no rules.
export function table(into, { changed = () => {}, until = () => [], share = true, rules = true } = {}) {
  let text = START, shown = null, at = 0, lines = [], timer = null, isBusy = false, hasLeft = false, queue = Promise.resolve();
  const said = element("p", { class: "bad", role: "alert" });
  const place = element("div"), reasons = element("div"), brokers = element("ul", { class: "faults" });
  const where = element("span", { class: "quiet", "aria-live": "polite" });
  const slider = element("input", { class: "time", type: "range", min: 0, value: 0, "aria-label": "Step", oninput: () => { at = Number(slider.value); draw(); } });

  const acks = choice("acks", [["all", "acks=all"], ["1", "acks=1"], ["0", "acks=0"]]);
  const value = element("input", { class: "value", "aria-label": "Record", placeholder: "m0", size: 6 });
  const target = element("select", { "aria-label": "Broker that clients ask" });
  const produce = button("Produce", () => act(`produce ${target.value} ${value.value.trim() || nextValue(text)} acks=${acks.value}`));
  const committed = element("input", { type: "checkbox" });
  const consume = button("Consume", () => act(`consume ${target.value}${committed.checked ? " committed" : ""}`));
  const wait = button("Wait 1 min", () => act("wait 1min"));
  const tick = button("Step", () => act("tick"), "primary");
  const run = button("Run", () => (timer === null ? go() : halt()));
  const speed = choice("Speed", SPEEDS, "1", () => { if (timer !== null) { halt(); go(); } });
  const undo = button("Undo", () => { halt(); queued(() => withoutLast(text)); });
  const again = button("Start anew", () => { halt(); play(text.split("\n\n")[0] + "\n\n"); });
  const minimum = choice("min.insync.replicas", ["1", "2", "3"].map((each) => [each, each]), "1", () => act(`min-in-sync ${minimum.value}`));
  const policies = RULES.map(([name, title, values]) => [name, title, choice(title, values, values[0][0], () => ruled(name))]);
  const area = element("textarea", { "aria-label": "The script", spellcheck: "false" });
  const copied = element("span", { class: "quiet", role: "status" });

  // Until the first document there is nothing to act on.
  const desk = element("div", { class: "card lab", inert: true },
    element("div", { class: "row" }, tick, run, speed, wait, undo, share && again, where),
    element("div", { class: "row" }, produce, value, acks, element("label", { class: "quiet" }, word("at "), target)),
    element("div", { class: "row" }, consume, element("label", { class: "quiet" }, committed, word(" committed transactions only"))),
    brokers, slider, said);

  into.replaceChildren(...[
    share && element("h1", {}, word("Lab")),
    share && element("p", { class: "quiet" }, told("Three brokers, one partition, the real node code. A step is half a second: followers fetch, leaders propose, the controller decides.")),
    legend(),
    element("div", { class: "bench" }, desk, place),
    rules && element("details", { class: "card" }, element("summary", {}, word("Rules")),
      element("p", { class: "row" }, element("label", {}, "min.insync.replicas ", minimum)),
      policies.map(([, title, chosen]) => element("p", { class: "row" }, element("label", {}, `${told(title)} `, chosen))),
      element("p", { class: "quiet" }, told("Another rule plays all steps anew. Broken invariants are named below the strips."))),
    element("h2", {}, word("Why?")), reasons,
    share && element("details", { class: "card" }, element("summary", {}, word("The script of this run")), area,
      element("p", { class: "row" }, button("Play it", () => { halt(); play(area.value); }), button("Copy a link to this run", copy), copied)),
  ].filter(Boolean));

  // One after the other, also before the node code is there: no press of a button is lost.
  function queued(script, isStep = false) {
    const done = queue.then(() => played(script(), isStep));
    queue = done.catch(() => {});
    return done;
  }

  const play = (script) => queued(() => script);
  const act = (line) => queued(() => withLine(text, line), true);

  async function played(script, isStep) {
    if (hasLeft) return false;
    isBusy = true;
    try {
      const found = await tell("/api/scenarios", { text: script, until: until() });
      if (hasLeft || !place.isConnected) return false; // another view has come meanwhile
      [shown, text] = [found, script];
      said.textContent = "";
      lines = [...new Set(shown.runs.flatMap((each) => each.frames.map((frame) => frame.line)))].sort((a, b) => a - b);
      at = lines.length - 1;
      if (share) history.replaceState(null, "", labLink(text));
      controls();
      draw();
      changed(shown, text);
      return true;
    } catch (error) {
      said.textContent = isStep ? error.message.replace(/^script, line \d+: /, "") : error.message;
      halt();
      return false;
    } finally {
      isBusy = false;
    }
  }

  function go() {
    run.textContent = word("Halt");
    timer = setInterval(() => { if (!document.hidden && !isBusy) act("tick"); }, 1000 / Number(speed.value));
    act("tick");
  }

  function halt() {
    clearInterval(timer);
    timer = null;
    run.textContent = word("Run");
  }

  function ruled(name) {
    const chosen = policies.map(([each, , select]) => `${each}=${select.value}`).filter((each) => !RULES.some(([rule, , values]) => each === `${rule}=${values[0][0]}`));
    halt();
    play(withHeader(text, "policy", chosen.join(" ")));
    return name;
  }

  // What can be done now; the buttons stay, so that the focus does.
  const rows = new Map();
  function controls() {
    desk.inert = false;
    const frame = shown.runs[0].frames.at(-1);
    const names = frame.replicas.map((each) => each.name);
    if ([...rows.keys()].join() !== names.join()) {
      rows.clear();
      for (const name of names) rows.set(name, brokerRow(name, act));
      brokers.replaceChildren(...[...rows.values()].map((each) => each.element));
      target.replaceChildren(element("option", { value: "leader" }, word("the leader")), ...names.map((name) => element("option", { value: name }, name)));
    }
    const first = target.options[0];
    first.value = frame.controller.leader ?? names[0];
    first.textContent = `${word("the leader")} (${frame.controller.leader ?? "none"})`;
    for (const replica of frame.replicas) rows.get(replica.name).show(replica, frame.controller);
    value.placeholder = nextValue(text);
    value.value = "";
    minimum.value = header(text, "min-in-sync") || "1";
    for (const line of text.split("\n")) if (actionOf(line)[0] === "min-in-sync") minimum.value = actionOf(line)[1];
    const policy = Object.fromEntries((header(text, "policy") || "").split(" ").filter(Boolean).map((each) => each.split("=")));
    for (const [name, , chosen] of policies) if (!policy[name]?.includes("|")) chosen.value = policy[name] ?? chosen.options[0].value;
    slider.max = lines.length - 1;
    undo.disabled = lines.length < 2;
    if (document.activeElement !== area) area.value = text;
  }

  function draw() {
    slider.value = at;
    const isNow = at === lines.length - 1;
    where.textContent = told(`Step ${at} of ${lines.length - 1}, ${(frameAt(shown.runs[0], lines[at]).time_ms / 1000).toFixed(1)} s`);
    place.replaceChildren(step(shown, lines[at]), element("div", { class: "runs" },
      shown.runs.map((each) => runAt(each, lines[at], lines[Math.max(0, at - 1)], isNow, false))));
    reasons.replaceChildren(isNow ? answers(shown.runs[0].why) : element("p", { class: "quiet" }, told("Of the newest step only.")));
  }

  async function copy() {
    await navigator.clipboard.writeText(location.href).then(() => { copied.textContent = "Copied."; }, () => { copied.textContent = "The address of this page is the link."; });
  }

  return { play, act, leave: () => { hasLeft = true; halt(); }, get text() { return text; }, get met() { return shown?.met ?? []; } };
}

// A broker's buttons, each for what it can do now.
function brokerRow(name, act) {
  const state = element("span", { class: "quiet" });
  const life = button("Kill", () => act(`${life.dataset.verb} ${name}`));
  const pause = button("Pause", () => act(`${pause.dataset.verb} ${name}`));
  const cut = button("Cut off", () => act(`${cut.dataset.verb} ${name}`));
  const fetch = button("Fetch", () => act(`fetch ${name}`));
  const lose = button("Fetch, answer lost", () => act(`fetch ${name} lose-reply`));
  const made = element("li", {}, element("span", {}, element("strong", {}, name), " ", state), element("span", { class: "row" }, life, pause, cut, fetch, lose));
  for (const each of [life, pause, cut, fetch, lose]) each.setAttribute("aria-describedby", `state-${name}`);
  state.id = `state-${name}`;

  function show(replica, controller) {
    const isDown = replica.role === "down";
    set(life, isDown ? ["Start", "start"] : ["Kill", "kill"]);
    set(pause, replica.paused ? ["Resume", "resume"] : ["Pause", "pause"]);
    set(cut, replica.cut_off ? ["Heal", "heal"] : ["Cut off", "cut"]);
    pause.disabled = isDown;
    for (const each of [fetch, lose]) each.disabled = replica.role !== "follower" || replica.paused;
    const facts = [replica.role, controller.in_sync.includes(name) && "in sync", replica.paused && "paused", replica.cut_off && "cut off"];
    state.textContent = facts.filter(Boolean).map(word).join(", ");
  }
  return { element: made, show };
}

function set(made, [label, verb]) {
  made.textContent = word(label);
  made.dataset.verb = verb;
}

function button(label, onclick, kind) {
  return element("button", { type: "button", onclick, class: kind }, word(label));
}

function choice(label, values, chosen, onchange) {
  const made = element("select", { "aria-label": label, onchange }, values.map(([value, text]) => element("option", { value }, text)));
  if (chosen) made.value = chosen;
  return made;
}
