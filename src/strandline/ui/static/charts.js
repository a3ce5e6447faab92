// The cluster over time: what the page's server has seen, also before this page was open.
import { chart } from "./chart.js";
import { ask, count, element, size } from "./dom.js";

const RANGES = [["300", "5 minutes"], ["3600", "1 hour"], ["86400", "24 hours"]];
const FINE_S = 3600; // what is older is kept by the minute only
const REFRESH_MS = 2000;
const GROUPS = 6; // so many lines, of those with the largest lags

const perSecond = (format) => (value) => `${format(value)}/s`;
const whole = (value) => count(Math.round(value * 10) / 10);
const bytes = (value) => size(Math.round(value));
const milliseconds = (value) => (value >= 1000 ? `${whole(value / 1000)} s` : `${whole(value)} ms`);

// [title, [[column, name]], format, options]
const CHARTS = [
  ["Bytes", [["bytes_in", "in"], ["bytes_out", "out"]], perSecond(bytes), { isBytes: true }],
  ["Records in", [["records_in", "records"]], perSecond(whole)],
  ["Answers to produce requests", [["produce_p99_ms", "99 of 100 within"], ["produce_median_ms", "half within"]], milliseconds],
  ["Partitions in trouble", [["under_replicated", "under-replicated"], ["without_leader", "without a leader"]], whole, { isStepped: true }],
  ["Changes of leaders and in-sync sets", [["in_sync_changes", "changes"]], whole, { isStepped: true }],
  ["Logs of all replicas", [["log_bytes", "size"]], bytes, { isBytes: true }],
];

// Asks for what is new, again and again; `draw(told)` gets all points of the range. Returns how to end it.
function following(range, draw) {
  const told = { columns: [], points: [], lags: [] };
  let hasLeft = false, timer = null;
  const isFine = () => range() <= FINE_S;
  let kind = null;

  async function once() {
    const wanted = isFine() ? "fine" : "coarse";
    if (wanted !== kind) { told.points = []; told.lags = []; kind = wanted; }
    // The newest point still changes: it is asked for again.
    const after = told.points.length > 1 ? told.points.at(-2)[0] : 0;
    const found = await ask(`/api/series?of=${wanted}&after=${after}`);
    if (hasLeft || wanted !== kind) return;
    told.columns = found.columns;
    const news = found.points[0]?.[0] ?? Infinity;
    told.points = [...told.points.filter(([at]) => at < news && at <= after), ...found.points];
    told.lags = [...told.lags.filter(([at]) => at <= after), ...found.lags];
    const from = (told.points.at(-1)?.[0] ?? 0) - range() * 1000;
    draw({ columns: told.columns, points: told.points.filter(([at]) => at >= from), lags: told.lags.filter(([at]) => at >= from) });
  }

  async function round() {
    clearTimeout(timer);
    if (!document.hidden) await once().catch(() => {}); // the header says that the server is gone
    if (!hasLeft) timer = setTimeout(round, REFRESH_MS);
  }
  round();
  return { again: round, leave() { hasLeft = true; clearTimeout(timer); } };
}

export function charts(into) {
  const range = element("select", { "aria-label": "Range", onchange: () => source.again() }, RANGES.map(([value, name]) => element("option", { value }, name)));
  const made = CHARTS.map(([title, , format, options]) => chart(title, format, options));
  const lag = chart("Records that groups have still to read", whole);
  const place = element("div", { class: "charts" }, made.map((each) => each.element), lag.element);
  into.replaceChildren(element("h1", {}, "Over time"), element("p", { class: "row" }, element("label", {}, "the last ", range)), place);
  const source = following(() => Number(range.value), (told) => {
    const times = told.points.map(([at]) => at / 1000);
    CHARTS.forEach(([, lines], number) => {
      const at = lines.map(([column]) => told.columns.indexOf(column));
      made[number].show(times, lines.map(([, name]) => name), at.map((column) => told.points.map((point) => point[column])));
    });
    lag.show(...lagLines(told.lags));
  });
  return () => { source.leave(); for (const each of [...made, lag]) each.leave(); };
}

// The lag of groups over time, above the list of groups.
export function lagChart() {
  const made = chart("Records that groups have still to read", whole);
  const source = following(() => FINE_S, (told) => made.show(...lagLines(told.lags)));
  return { element: made.element, leave() { source.leave(); made.leave(); } };
}

function lagLines(lags) {
  const last = Object.assign({}, ...lags.map(([, found]) => found)); // of a group that is not known now, what was known last
  const names = Object.keys(last).sort((a, b) => last[b] - last[a] || (a < b ? -1 : 1)).slice(0, GROUPS).sort();
  return [lags.map(([at]) => at / 1000), names, names.map((name) => lags.map(([, found]) => found[name] ?? null))];
}
