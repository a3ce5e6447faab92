// A table with any number of rows, of which only those in sight are drawn.
//
// A row is an array of cells; a cell is text, nothing, a part { text, href, kind } or a list of parts.
// Rows that stay in sight keep their elements, and only cells that differ are made anew: a link keeps
// the focus while the numbers beside it change.
import { element } from "./dom.js";

const BEYOND = 6; // so many more above and below
const ROW_PIXELS = 33; // until the first row is measured

// key(item) is unique; cells(item) is called for what is in sight only. Returns { element, show }.
export function longTable(label, headers, key, cells) {
  const numeric = headers.map((header) => header.startsWith("#"));
  const above = element("tr", { "aria-hidden": "true" });
  const below = element("tr", { "aria-hidden": "true" });
  const body = element("tbody", {}, above, below);
  const made = element("table", { "aria-label": label },
    element("thead", {}, element("tr", { "aria-rowindex": 1 }, headers.map((header, at) => element("th", { scope: "col", class: numeric[at] && "number" }, header.replace(/^#/, ""))))),
    body);
  const scroller = element("div", { class: "scroll long", tabindex: 0, role: "region", "aria-label": `${label}, can be scrolled` }, made);
  const drawn = new Map(); // key to { row, cells, texts }
  let items = [];
  let height = ROW_PIXELS;

  function draw() {
    const seen = Math.ceil((scroller.clientHeight || window.innerHeight) / height);
    const first = Math.max(0, Math.min(Math.floor(scroller.scrollTop / height), items.length - seen) - BEYOND);
    const last = Math.min(items.length, first + seen + 2 * BEYOND);
    above.style.height = `${first * height}px`;
    below.style.height = `${(items.length - last) * height}px`;
    above.hidden = first === 0;
    below.hidden = last === items.length;
    made.setAttribute("aria-rowcount", items.length + 1);
    const wanted = new Set(items.slice(first, last).map(key));
    for (const [name, old] of drawn) {
      if (wanted.has(name)) continue;
      if (old.row.contains(document.activeElement)) scroller.focus({ preventScroll: true });
      old.row.remove();
      drawn.delete(name);
    }
    let before = above;
    for (let at = first; at < last; at += 1) {
      const name = key(items[at]);
      let shown = drawn.get(name);
      if (!shown) drawn.set(name, shown = newRow());
      fill(shown, cells(items[at]));
      shown.row.setAttribute("aria-rowindex", at + 2);
      if (before.nextSibling !== shown.row) before.after(shown.row);
      before = shown.row;
    }
  }

  function newRow() {
    const places = numeric.map((is) => element("td", { class: is && "number" }));
    return { row: element("tr", {}, places), places, texts: numeric.map(() => null) };
  }

  function measure() {
    const [one] = drawn.values();
    const found = one?.row.getBoundingClientRect().height;
    if (!found || Math.abs(found - height) < 0.5) return;
    height = found;
    draw();
  }

  scroller.addEventListener("scroll", draw, { passive: true });
  return { element: scroller, show(found) { items = found; draw(); measure(); } };
}

function fill(shown, cells) {
  cells.forEach((cell, at) => {
    const text = JSON.stringify(cell ?? null);
    if (shown.texts[at] === text) return;
    shown.texts[at] = text;
    shown.places[at].replaceChildren(...[cell].flat().map(part).flatMap((each, index) => index ? [" ", each] : [each]));
  });
}

function part(cell) {
  if (cell === null || cell === undefined) return "–";
  if (typeof cell === "string") return cell;
  return cell.href ? element("a", { href: cell.href, title: cell.text }, cell.text) : element("span", { class: cell.kind }, cell.text);
}
