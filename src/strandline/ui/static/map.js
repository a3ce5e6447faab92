// All partitions at a glance: a row for each broker with a cell for each partition that it leads, one
// colour and one mark for each state. Cells are drawn on a canvas, since there may be thousands; the
// pointer or the arrow keys choose one, which is told below, and a click or Enter opens it.
import { count, element } from "./dom.js";
import { ailment } from "./picture.js";

const SIZES = [[150, 16], [600, 12], [2000, 9], [Infinity, 6]]; // pixels, by the most cells of a row
const CELLS_MAX = 5000;
const GAP = 2;

export function partitionMap(live) {
  const told = element("p", { class: "quiet told", "aria-live": "polite" });
  const place = element("div");
  const rows = new Map();
  const hint = "Point at a cell, or move with the arrow keys; Enter opens the partition.";
  told.textContent = hint;

  function redraw() {
    const brokers = live.head.brokers.map((each) => [each.id, each.rack]).sort((a, b) => order(a[1], b[1]) || a[0] - b[0]);
    const led = new Map(brokers.map(([id]) => [id, []]));
    for (const keys of live.topics.values()) for (const each of keys) {
      if (!led.has(each.leader)) led.set(each.leader, []);
      led.get(each.leader).push(each);
    }
    const most = Math.max(1, ...[...led.values()].map((each) => each.length));
    const cell = SIZES.find(([upTo]) => most <= upTo)[1];
    const racks = new Map(brokers);
    for (const [id, row] of rows) if (!led.has(id)) { row.element.remove(); rows.delete(id); }
    for (const [id, partitions] of led) {
      if (!rows.has(id)) { rows.set(id, mapRow(id, told, hint)); }
      rows.get(id).show(partitions, cell, racks.get(id));
    }
    const wanted = [...led.keys()].map((id) => rows.get(id).element);
    if (wanted.some((each, at) => place.children[at] !== each)) place.replaceChildren(...wanted);
  }

  return { redraw, element: element("section", { "aria-label": "Map of partitions" },
    element("h2", {}, "Who leads what"),
    element("div", { class: "card" }, place, told,
      element("div", { class: "legend" }, element("span", {}, element("span", { class: "dot fine" }), "all in sync"), element("span", {}, element("span", { class: "dot thin" }), "under-replicated, or the leader is silent"), element("span", {}, element("span", { class: "dot lost" }), "no leader, or a copy offline")))) };
}

function order(a, b) {
  return (a ?? "") < (b ?? "") ? -1 : (a ?? "") > (b ?? "") ? 1 : 0;
}

function mapRow(id, told, hint) {
  const name = element("strong", {}, id === -1 ? "No leader" : `Broker ${id}`);
  const about = element("span", { class: "quiet" });
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "map", onpointermove: (event) => choose(under(event)), onpointerleave: () => choose(null),
    onclick: (event) => open(under(event)), onkeydown: move, onfocus: () => choose(chosen ?? 0), onblur: () => choose(null) });
  const row = element("div", { class: "maprow" }, element("span", {}, name, " ", about), canvas);
  let shown = [], cell = 16, columns = 1, drawn = "", chosen = null;

  function show(partitions, pixels, rack) {
    shown = partitions.slice(0, CELLS_MAX);
    const text = [rack && `rack ${rack}`, `leads ${count(partitions.length)}`, partitions.length > CELLS_MAX && `${count(CELLS_MAX)} of them drawn`].filter(Boolean).join(", ");
    if (about.textContent !== text) about.textContent = text;
    const wrong = partitions.filter(ailment).length;
    canvas.setAttribute("aria-label", `Partitions of ${name.textContent.toLowerCase()}: ${count(partitions.length)}, ${wrong ? `${count(wrong)} with something wrong` : "nothing wrong"}`);
    cell = pixels;
    draw();
  }

  function draw() {
    const width = Math.max(row.clientWidth > 560 ? row.clientWidth - 190 : row.clientWidth, cell);
    columns = Math.max(1, Math.floor(width / cell));
    const lines = Math.ceil(shown.length / columns) || 1;
    const kinds = shown.map((each) => ailment(each)?.[1] ?? "good");
    const colours = getComputedStyle(document.documentElement);
    const now = [columns, cell, chosen, colours.getPropertyValue("--card"), devicePixelRatio, kinds.join()].join();
    if (now === drawn) return; // most of the time nothing changed
    drawn = now;
    const scale = devicePixelRatio || 1;
    canvas.width = columns * cell * scale;
    canvas.height = lines * cell * scale;
    canvas.style.width = `${columns * cell}px`;
    canvas.style.height = `${lines * cell}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const paint = { good: colours.getPropertyValue("--good"), warn: colours.getPropertyValue("--warn"), bad: colours.getPropertyValue("--bad") };
    kinds.forEach((kind, at) => {
      const [x, y, side] = [(at % columns) * cell, Math.floor(at / columns) * cell, cell - GAP];
      pen.fillStyle = paint[kind];
      pen.globalAlpha = kind === "good" ? 0.55 : 1;
      // States differ in shape as well: a full cell, one with a hole, a cross.
      if (kind === "bad") { pen.lineWidth = Math.max(2, side / 4); pen.strokeStyle = paint.bad; pen.beginPath(); pen.moveTo(x + 1, y + 1); pen.lineTo(x + side - 1, y + side - 1); pen.moveTo(x + side - 1, y + 1); pen.lineTo(x + 1, y + side - 1); pen.stroke(); }
      else { pen.fillRect(x, y, side, side); if (kind === "warn") pen.clearRect(x + side / 3, y + side / 3, side / 3, side / 3); }
      pen.globalAlpha = 1;
    });
    if (chosen !== null && chosen < shown.length) {
      pen.strokeStyle = colours.getPropertyValue("--text");
      pen.lineWidth = 2;
      pen.strokeRect((chosen % columns) * cell, Math.floor(chosen / columns) * cell, cell - GAP, cell - GAP);
    }
  }

  function under(event) {
    const at = Math.floor(event.offsetY / cell) * columns + Math.min(Math.floor(event.offsetX / cell), columns - 1);
    return at >= 0 && at < shown.length ? at : null;
  }

  function choose(at) {
    chosen = at !== null && shown.length ? Math.min(at, shown.length - 1) : null;
    canvas.style.cursor = chosen === null ? "default" : "pointer";
    const each = shown[chosen];
    told.textContent = each ? `${each.topic}, partition ${each.partition}: leader ${each.leader === -1 ? "none" : each.leader}, epoch ${each.epoch}, replicas ${each.replicas.join(" ")}, in sync ${(each.inSync ?? []).join(" ") || "unknown"}${ailment(each) ? `: ${ailment(each)[0]}` : ""}` : hint;
    draw();
  }

  function open(at) {
    if (at !== null && shown[at]) location.hash = `#/topics/${encodeURIComponent(shown[at].topic)}/${shown[at].partition}`;
  }

  function move(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -shown.length, End: shown.length };
    if (event.key === "Enter") { open(chosen); return; }
    if (!(event.key in steps) || !shown.length) return;
    event.preventDefault();
    choose(Math.min(Math.max((chosen ?? 0) + steps[event.key], 0), shown.length - 1));
  }

  // Rows that went are forgotten with their observers.
  new ResizeObserver(() => { if (shown.length) draw(); }).observe(row);
  return { element: row, show };
}
