// Faults: how every broker of a local cluster is, and buttons that make it otherwise. The rows stay
// while the page is open and only change, so that the focus stays where it is.
import { ask, element, tell, withCode } from "./dom.js";

const REFRESH_MS = 1000;
const TROUBLE_MS = 5000;

const LIVES = {
  running: ["runs", "good"], paused: ["paused", "warn"], restarting: ["restarting …", "warn"], down: ["down", "bad"],
};

const MEANINGS = [
  ["Pause, Resume", "Stops a broker as SIGSTOP does: it keeps its connections and says nothing. When its session has run out, the others go on without it."],
  ["Kill", "Ends it without warning, as SIGKILL does."],
  ["Restart", "Starts one that is down, as soon as its session has ended; one that runs is shut down cleanly first."],
  ["Cut off, Heal", "Takes away its connections to the other brokers and to the metadata. Clients still reach it."],
  ["Slow disk", "Holds the whole broker up by so much whenever it has written records, until Heal."],
  ["Expire session", "Has the metadata store take it for dead, though it lives; it registers anew."],
];

// `about(id)`: what to say of a broker beside its state; `title`: what stands above, in front of the
// buttons for all brokers. Returns { tellAbout, leave }.
export function faults(into, about, ...title) {
  const rows = new Map();
  let shown = null; // what the server said last
  let news = 0; // counts what was caused: answers from before it are old
  let timer = null;
  let looks = 0; // only the newest look brings about a next one
  let hasLeft = false;

  const done = element("span", { class: "quiet", role: "status" });
  const wrong = element("p", { class: "bad", role: "alert", hidden: true });
  const list = element("ul", { class: "faults" });
  const healAll = element("button", { hidden: true, onclick: () => causeForAll("heal", []) }, "Heal all");
  const restartAll = element("button", { hidden: true, onclick: () => causeForAll("restart", idsOf((each) => each.life === "down")) }, "Restart all that are down");
  const killAll = element("button", { hidden: true, onclick: () => sure.showModal() }, "Kill all …");
  const sure = element("dialog", { "aria-labelledby": "kill-all" },
    element("p", { id: "kill-all" }, "Kill all brokers that run? No client can write or read until some are restarted."),
    element("form", { class: "row", method: "dialog" },
      element("button", { autofocus: true }, "Cancel"),
      element("button", { class: "bad", onclick: () => causeForAll("kill", idsOf((each) => each.life !== "down" && each.life !== "restarting")) }, "Kill all")));
  const legend = element("details", {}, element("summary", {}, "What these do"),
    element("dl", {}, MEANINGS.map(([name, meaning]) => [element("dt", {}, name), element("dd", {}, meaning)])));
  const place = element("div", { class: "card", tabindex: -1 });
  into.append(element("div", { class: "row head" }, title, healAll, restartAll, killAll, done), wrong, place, sure);

  const idsOf = (condition) => shown.brokers.filter(condition).map((each) => each.id);

  async function refresh() {
    clearTimeout(timer);
    const before = news;
    const look = looks += 1;
    let next = REFRESH_MS;
    try {
      const found = document.hidden ? null : await ask("/api/faults");
      if (hasLeft) return;
      if (found && news === before) draw(found);
      if (found && !found.allowed) return; // it stays so while this cluster runs
    } catch (error) {
      if (hasLeft) return;
      next = TROUBLE_MS;
      if (shown === null) place.replaceChildren(element("p", { class: "quiet" }, `Whether faults are allowed is not known: ${error.message}`));
    }
    if (look === looks) timer = setTimeout(refresh, next);
  }

  function draw(found) {
    shown = found;
    if (!found.allowed) {
      place.replaceChildren(element("p", { class: "quiet" }, withCode(found.how)));
      return;
    }
    const ids = found.brokers.map((each) => each.id);
    if (ids.join() !== [...rows.keys()].join()) {
      rows.clear();
      for (const id of ids) rows.set(id, brokerRow(id, found, (fault, delay) => cause(fault, [id], delay)));
      list.replaceChildren(...[...rows.values()].map((row) => row.element));
    }
    if (!list.isConnected) place.replaceChildren(list, legend);
    for (const each of found.brokers) rows.get(each.id).show(each);
    showIf(healAll, found.brokers.some((each) => each.is_cut_off || each.slow_ms !== null), place);
    showIf(restartAll, found.brokers.some((each) => each.life === "down"), place);
    showIf(killAll, found.brokers.some((each) => each.life === "running" || each.life === "paused"), place);
    tellAbout();
  }

  function tellAbout() {
    for (const [id, row] of rows) row.about(about(id));
  }

  async function cause(fault, brokers, delay = undefined) {
    const affected = brokers.length ? brokers.map((id) => rows.get(id)) : [...rows.values()];
    if (affected.some((row) => row.isBusy())) return;
    for (const row of affected) row.busy(true);
    wrong.hidden = true;
    done.textContent = fault === "restart" ? "Restarting; a killed broker's session must end first …" : "";
    try {
      const found = await tell("/api/faults", { fault, brokers, delay_ms: delay });
      news += 1;
      done.textContent = found.done;
      if (found.allowed) draw(found);
    } catch (error) {
      news += 1;
      done.textContent = "";
      wrong.textContent = error instanceof TypeError ? "The page's server does not answer." : error.message;
      wrong.hidden = false;
    } finally {
      for (const row of affected) row.busy(false);
    }
    if (!hasLeft) refresh();
  }

  function causeForAll(fault, brokers) {
    if (fault === "heal" || brokers.length) cause(fault, brokers);
  }

  refresh();
  return { tellAbout, leave: () => { hasLeft = true; clearTimeout(timer); if (sure.open) sure.close(); } };
}

function brokerRow(id, limits, cause) {
  let state = null;
  let isBusy = false;
  const of = (words) => `${words} broker ${id}`;
  const button = (words, onclick, name = of(words)) => element("button", { "aria-label": name, onclick: () => { if (!isBusy && state.life !== "restarting") onclick(); } }, words);
  const pause = button("Pause", () => cause(state.life === "paused" ? "resume" : "pause"));
  const kill = button("Kill", () => cause("kill"));
  const restart = button("Restart", () => cause("restart"));
  const cut = button("Cut off", () => cause("partition"));
  const heal = button("Heal", () => cause("heal"));
  const expire = button("Expire session", () => cause("expire-session"), `Expire session of broker ${id}`);
  const delay = element("input", { type: "number", min: 1, max: limits.delay_ms_max, value: limits.delay_ms, "aria-label": `Milliseconds that the disk of broker ${id} takes longer` });
  const slow = element("form", { class: "slow", novalidate: true, onsubmit: (event) => { event.preventDefault(); if (!isBusy) cause("slow-disk", delay.value === "" ? null : Number(delay.value)); } },
    element("button", { "aria-label": of("Slow disk on") }, "Slow disk"), delay, " ms");
  const states = element("span", { class: "states" });
  const said = element("span", { class: "quiet" });
  const actions = element("div", { class: "row", role: "group", "aria-label": `Faults on broker ${id}` }, pause, kill, restart, cut, heal, slow, expire);
  const made = element("li", {}, element("div", { class: "row" }, element("strong", {}, `Broker ${id}`), states, said), actions);
  let drawn = "";


  return {
    element: made,
    isBusy: () => isBusy,
    about: (text) => { if (said.textContent !== text) said.textContent = text; },
    busy(is) {
      isBusy = is;
      made.setAttribute("aria-busy", String(is));
      // Not `disabled`: that would take the focus away from a user of the keyboard.
      for (const each of actions.querySelectorAll("button")) each.setAttribute("aria-disabled", String(is || state?.life === "restarting"));
    },
    show(found) {
      state = found;
      if (JSON.stringify(found) === drawn) return;
      drawn = JSON.stringify(found);
      made.dataset.life = found.life;
      states.replaceChildren(...badges(found));
      const lives = found.life === "running" || found.life === "paused";
      pause.textContent = found.life === "paused" ? "Resume" : "Pause";
      pause.setAttribute("aria-label", of(pause.textContent));
      for (const each of [pause, kill, slow, expire]) showIf(each, lives, restart);
      showIf(cut, !found.is_cut_off, heal);
      showIf(heal, found.is_cut_off || found.slow_ms !== null, cut);
      this.busy(isBusy);
    },
  };
}

function badges(found) {
  const badge = (words, how) => element("span", { class: `badge ${how}` }, words);
  return [badge(...LIVES[found.life]),
    ...(found.is_cut_off ? [badge("cut off", "bad")] : []),
    ...(found.slow_ms !== null ? [badge(`disk ${found.slow_ms} ms slower`, "warn")] : [])];
}

// What goes away must not take the focus with it.
function showIf(which, is, otherwise) {
  const hadFocus = !is && which.contains(document.activeElement);
  which.hidden = !is;
  if (!hadFocus) return;
  otherwise.hidden = false;
  otherwise.focus();
}
