// A replica as a strip: one cell for each offset, coloured by leader epoch, hatched where it is not
// committed yet; a thick mark is the high watermark, a thin one the log end. A dashed mark is the last
// stable offset, where a transaction that is not decided holds readers of committed records back.
import { element } from "./dom.js";
import { told } from "./sentences.js";
import { word } from "./words.js";

const EPOCH_COLOURS = 6;

// records: [offset, epoch, text] in order. replica: high_watermark, log_end, log_start, and last_stable
// if it is known.
export function strip(records, replica, seen = new Set()) {
  const made = element("div", { class: "strip", tabindex: 0, role: "img", "aria-label": inWords(records, replica) });
  const stable = replica.last_stable ?? replica.high_watermark;
  let marked = false, held = stable >= replica.high_watermark;
  for (const [offset, epoch, text] of records) {
    const open = offset >= replica.high_watermark;
    if (!held && offset >= stable) { made.append(stableMark(stable)); held = true; }
    if (open && !marked) { made.append(mark("high watermark", replica.high_watermark)); marked = true; }
    made.append(element("div", {
      class: `cell e${epoch % EPOCH_COLOURS}${open ? " open" : ""}${seen.size && !seen.has(offset) ? " new" : ""}`,
      title: told(`offset ${offset}, leader epoch ${epoch}, ${open ? "not committed" : "committed"}`),
    }, text ?? String(offset)));
  }
  if (!marked) made.append(mark("high watermark", replica.high_watermark));
  made.append(element("div", { class: "mark end", title: told(`log end offset ${replica.log_end}`) }));
  return made;
}

function stableMark(offset) {
  return element("div", { class: "mark stable", title: told(`last stable offset ${offset}: a transaction is not decided`) });
}

function mark(what, offset) {
  return element("div", { class: "mark", title: told(`${what} ${offset}`) });
}

function inWords(records, replica) {
  const shown = records.map(([offset, epoch, text]) => `${text ?? offset} in epoch ${epoch}`).join(", ");
  const held = replica.last_stable < replica.high_watermark ? `last stable offset ${replica.last_stable}, ` : "";
  return told(`records: ${shown || "none"}; ${held}high watermark ${replica.high_watermark}, log end ${replica.log_end}`);
}

export function legend() {
  return element("div", { class: "legend" },
    element("span", {}, element("span", { class: "cell e0" }), told("epoch 0")),
    element("span", {}, element("span", { class: "cell e1" }), told("epoch 1 …")),
    element("span", {}, element("span", { class: "cell e0 open" }), word("not committed")),
    element("span", {}, element("span", { class: "mark stable" }), word("last stable offset")),
    element("span", {}, element("span", { class: "mark" }), word("high watermark")),
    element("span", {}, element("span", { class: "mark end" }), word("log end")));
}
