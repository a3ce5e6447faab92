// One chart of numbers over time: uPlot draws it, and screen readers and a table say the same.
//
// A chart is a group that takes the focus: the arrow keys move its cursor, and the values there are said.
import { clock, element } from "./dom.js";
import uPlot from "./vendor/uplot/uPlot.esm.js";

const HEIGHT = 170;
const DASHES = [[], [6, 4], [2, 3], [10, 4, 2, 4]]; // lines differ without colours, too
// Steps of the upright axis: round numbers of what is counted.
const DECIMAL = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((each) => each * 10 ** power)).flat();
const BINARY = Array.from({ length: 52 }, (_, power) => 2 ** power);
const ROWS = 12; // of the table below
const ALONE_S = 30; // on either side of a single point

let styled = false;

function styles() {
  if (styled) return;
  styled = true;
  document.head.append(element("link", { rel: "stylesheet", href: new URL("./vendor/uplot/uPlot.min.css", import.meta.url).href }));
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// `format(number)` is the text of a value; `show(times, columns)` has seconds, and as many arrays as `names`.
// Returns { element, show, leave }.
export function chart(title, format, { isStepped = false, isBytes = false } = {}) {
  styles();
  const place = element("div", { class: "plot" });
  const said = element("p", { class: "quiet now" });
  const here = element("span", { class: "quiet", "aria-live": "polite" });
  const rows = element("div");
  const readable = element("details", { ontoggle: () => tabulate() }, element("summary", {}, "As a table"), rows);
  const figure = element("div", { class: "card chart", tabindex: 0, role: "group", "aria-label": `${title}, chart`, onkeydown: move },
    element("div", { class: "caption" }, element("strong", {}, title), " ", here), place, said, readable);
  let plot = null, names = [], times = [], columns = [];

  function make() {
    const at = plot?.cursor.idx ?? null;
    plot?.destroy();
    const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, font: "12px system-ui, sans-serif" };
    plot = new uPlot({
      width: Math.max(place.clientWidth, 100), height: HEIGHT,
      cursor: { sync: { key: "strandline" }, drag: { x: false, y: false } },
      legend: { show: false },
      scales: { x: { time: true, range: (u, first, last) => (first === last ? [first - ALONE_S, last + ALONE_S] : [first, last]) }, y: { range: (u, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      axes: [
        { ...axis, size: 32, space: 70, values: (u, splits) => splits.map((each) => clock(each * 1000).slice(0, times.at(-1) - times[0] > 1200 ? 5 : 8)) },
        { ...axis, size: 80, incrs: isBytes ? BINARY : DECIMAL, values: (u, splits) => splits.map((each) => format(each)) },
      ],
      series: [{}, ...names.map((name, number) => ({
        label: name, stroke: colour(`line${number % 6}`), width: 2, dash: DASHES[Math.floor(number / 6) % DASHES.length], points: { show: () => times.length < 4, size: 6 },
        paths: isStepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
      }))],
      hooks: { setCursor: [point] },
    }, [times, ...columns], place);
    plot.root.setAttribute("aria-hidden", "true"); // what it shows is said beside it
    if (at !== null && times.length) put(at);
  }

  function point(u) {
    const at = u.cursor.idx;
    here.textContent = at === null || at === undefined || times[at] === undefined ? "" : `${clock(times[at] * 1000).slice(0, 8)} UTC: ${values(at)}`;
  }

  function values(at) {
    return names.map((name, number) => `${names.length > 1 ? `${name} ` : ""}${text(columns[number][at])}`).join(", ");
  }

  function text(value) {
    return value === null || value === undefined ? "–" : format(value);
  }

  function put(at) {
    plot.setCursor({ left: plot.valToPos(times[at], "x"), top: HEIGHT / 3 });
  }

  function move(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -times.length, End: times.length }[event.key];
    if (!step || !plot || !times.length || event.target !== figure) return;
    event.preventDefault();
    put(Math.min(Math.max((plot.cursor.idx ?? times.length) + step, 0), times.length - 1));
  }

  // Which line is which, and how it stands: the legend of the chart, and what a screen reader says.
  function summarize() {
    const last = times.length - 1;
    said.replaceChildren(...(isEmpty() ? ["Nothing was seen yet."] : names.flatMap((name, number) => {
      const known = columns[number].filter((each) => each !== null && each !== undefined);
      return [element("span", { class: "key" }, element("span", { class: `swatch line${number % 6}` }), `${name}: ${text(columns[number][last])}`,
        known.length > 1 && `, highest ${text(Math.max(...known))}`), " "];
    })));
  }

  function isEmpty() {
    return !times.length || !names.length;
  }

  function tabulate() {
    if (!readable.open) { rows.replaceChildren(); return; }
    const step = Math.max(1, Math.ceil(times.length / ROWS));
    const picked = times.map((each, at) => at).filter((at) => (times.length - 1 - at) % step === 0).reverse();
    rows.replaceChildren(element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}, table` }, element("table", {},
      element("thead", {}, element("tr", {}, ["UTC", ...names].map((each) => element("th", { scope: "col" }, each)))),
      element("tbody", {}, picked.map((at) => element("tr", {}, element("td", {}, clock(times[at] * 1000).slice(0, 8)), columns.map((column) => element("td", {}, text(column[at])))))))));
  }

  const sizes = new ResizeObserver(() => { if (plot && place.clientWidth) plot.setSize({ width: place.clientWidth, height: HEIGHT }); });
  sizes.observe(place);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const again = () => { if (plot) make(); };
  dark.addEventListener("change", again);

  return {
    element: figure,
    show(newTimes, newNames, newColumns) {
      const others = newNames.join("\n") !== names.join("\n");
      [times, names, columns] = [newTimes, newNames, newColumns];
      place.hidden = readable.hidden = isEmpty(); // axes of nothing say nothing
      if (!plot || others) make(); else plot.setData([times, ...columns]);
      summarize();
      if (readable.open && !rows.contains(document.activeElement)) tabulate();
    },
    leave() { sizes.disconnect(); dark.removeEventListener("change", again); plot?.destroy(); },
  };
}
