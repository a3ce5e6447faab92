// The page: which view the address names, and what stands in the header.
import { charts } from "./charts.js";
import { cluster, partitionView } from "./cluster.js";
import { ask, element } from "./dom.js";
import { lab } from "./lab.js";
import { lesson, lessonList, preferred } from "./lessons.js";
import { groups, ledger, transactions, why } from "./lists.js";
import { Live } from "./picture.js";
import { scenario, scenarioList } from "./player.js";
import { records } from "./records.js";
import { tables } from "./tables.js";
import { topicView } from "./topics.js";

const live = new Live();
let main = document.getElementById("main");
const said = document.getElementById("said");
let leave = () => {};
let turn = 0; // counts views: the lab changes the address by itself

const VIEWS = [
  [/^#?\/?$/, () => cluster(main, live)],
  [/^#\/topics\/([^/]+)$/, (topic) => topicView(main, live, topic)],
  [/^#\/topics\/([^/]+)\/(\d+)$/, (topic, number) => partitionView(main, live, topic, Number(number))],
  [/^#\/topics\/([^/]+)\/(\d+)\/records$/, (topic, number) => records(main, live, topic, Number(number))],
  [/^#\/charts$/, () => charts(main)],
  [/^#\/tables$/, () => tables(main)],
  [/^#\/groups$/, () => groups(main, live)],
  [/^#\/transactions$/, () => transactions(main, live)],
  [/^#\/ledger$/, () => ledger(main, live)],
  [/^#\/why$/, () => why(main, live)],
  [/^#\/scenarios$/, () => scenarioList(main)],
  [/^#\/scenarios\/([^/]+)$/, (name) => scenario(main, name)],
  [/^#\/lessons$/, () => lessonList(main, preferred())],
  [/^#\/lessons\/(\w+)$/, (language) => lessonList(main, language)],
  [/^#\/lessons\/(\w+)\/([^/]+)$/, (language, name) => lesson(main, language, name)],
  [/^#\/lab(?:\/([^/]*))?$/, (script) => lab(main, script)],
];

async function draw() {
  leave();
  leave = () => {};
  // Each view has a place of its own: what one that was left still draws is not to be seen.
  const place = main.cloneNode(false);
  main.replaceWith(place);
  main = place;
  const address = location.hash;
  const mine = turn += 1;
  for (const link of document.querySelectorAll("header nav a")) {
    const here = link.hash === "#/" ? /^#?\/?$|^#\/topics/.test(address) : address.startsWith(link.hash);
    if (here) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  const found = VIEWS.map(([pattern, view]) => [address.match(pattern), view]).find(([match]) => match);
  if (!found) {
    main.replaceChildren(element("p", {}, "There is no such view. ", element("a", { href: "#/" }, "To the cluster")));
    return;
  }
  try {
    const ended = await found[1](...found[0].slice(1).map((each) => each && decodeURIComponent(each)));
    if (typeof ended !== "function") return;
    // The reader may have gone on while this view was still being made.
    if (turn === mine) leave = ended; else ended();
  } catch (error) {
    if (turn === mine) main.replaceChildren(element("p", { class: "bad", role: "alert" }, error.message));
  }
}

function head() {
  if (!live.isConnected) said.textContent = "Not connected: this page shows what it last heard.";
  else if (live.trouble) said.textContent = live.trouble;
  else if (live.head) said.textContent = `controller ${live.head.controller ?? "none"}, ${live.head.brokers.filter((each) => !each.error).length} of ${live.head.brokers.length} brokers answer`;
  said.className = !live.isConnected || live.trouble ? "said bad" : "said";
}

const WITHOUT_A_CLUSTER = ["#/lab", "#/scenarios", "#/lessons"];

ask("/api/moments").then(({ moments }) => moments !== null, () => false).then((hasCluster) => {
  if (hasCluster) {
    live.listen(head);
    live.start();
    return;
  }
  // There is no cluster behind this page.
  for (const link of document.querySelectorAll("header nav a")) if (!WITHOUT_A_CLUSTER.includes(link.hash)) link.remove();
  if (!WITHOUT_A_CLUSTER.some((each) => location.hash.startsWith(each))) history.replaceState(null, "", document.querySelector("header nav a").hash);
}).then(() => {
  window.addEventListener("hashchange", draw);
  draw();
});
