// Lessons: the lab with a text beside it. A step says what has happened and asks a question, which the reader
// answers by acting; lessons.json says what is played, and when an answer is right (see ui/lab/lessons.py).
import { element } from "./dom.js";
import { table } from "./lab.js";
import { labLink } from "./links.js";
import { learn } from "./sentences.js";
import { speak } from "./words.js";

const LANGUAGES = { en: "English", zh: "中文" };

async function load(name) {
  const response = await fetch(new URL(`./lessons/${name}.json`, import.meta.url));
  if (!response.ok) throw new Error(`The lessons cannot be loaded: ${response.status}`);
  return response.json();
}

export function preferred() {
  return navigator.language?.startsWith("zh") ? "zh" : "en";
}

async function read(language) {
  const code = language in LANGUAGES ? language : "en";
  const [{ lessons }, told] = await Promise.all([load("lessons"), load(code), learn(code)]);
  return { lessons, told, words: told.words };
}

function languages(language, rest) {
  return element("span", { class: "row languages" }, Object.entries(LANGUAGES).map(([code, name]) =>
    element("a", { href: `#/lessons/${code}${rest}`, lang: code, "aria-current": code === language && "true" }, name)));
}

export async function lessonList(into, language) {
  speak(language);
  const { lessons, told, words } = await read(language);
  into.replaceChildren(element("div", { lang: language },
    element("div", { class: "row head" }, element("h1", {}, words.lessons), languages(language, "")),
    element("p", { class: "quiet" }, words.about),
    element("ol", { class: "card lessons" }, lessons.map(({ name }) => element("li", {},
      element("a", { href: `#/lessons/${language}/${name}` }, told.lessons[name].title),
      element("div", { class: "quiet" }, told.lessons[name].about))))));
}

export async function lesson(into, language, name) {
  speak(language);
  const { lessons, told, words } = await read(language);
  const at = lessons.findIndex((each) => each.name === name);
  if (at === -1) throw new Error(`There is no lesson '${name}'.`);
  const { steps } = lessons[at], text = told.lessons[name];
  const said = element("p", { class: "said-step" }), ask = element("p", { class: "ask" }), where = element("span", { class: "quiet" });
  const reached = element("p", { class: "good", role: "status" }), ending = element("div");
  const next = element("button", { type: "button", class: "primary", onclick: () => enter(number + 1) }, words.next);
  const again = element("button", { type: "button", onclick: () => made.play(base) }, words.again);
  const show = element("button", { type: "button", onclick: () => made.play(base + lines(steps[number].answer)) }, words.show);
  const place = element("div", { lang: language });
  let number = -1, base = "", canonical = "", isEntering = false;

  into.replaceChildren(element("div", { lang: language },
    element("div", { class: "row head" }, element("h1", {}, text.title), languages(language, `/${name}`)),
    element("section", { class: "card lesson", "aria-live": "polite" }, where, said, ask, reached,
      element("div", { class: "row" }, next, show, again), ending)), place);
  const until = () => (isEntering ? steps[number].claims : steps[number]?.until?.expect ? [steps[number].until.expect] : []);
  const made = table(place, { share: false, rules: false, until, changed });

  // A step goes on with what the reader did, if what its text says is so there; else with the answer that was to be given.
  async function enter(to) {
    const step = steps[to];
    for (const each of [next, again, show]) each.disabled = true; // a second press is none
    if (step.begin) canonical = `${step.begin}\n`;
    const played = lines(step.do ?? []);
    const own = step.begin ? canonical : made.text;
    canonical += played;
    number = to;
    isEntering = true;
    base = own + played;
    const isOwn = await made.play(base) && made.met.every(Boolean);
    if (!isOwn) { base = canonical; await made.play(base); }
    isEntering = false;
    canonical += lines(step.answer ?? []);
    where.textContent = words.step.replace("{at}", to + 1).replace("{all}", steps.length);
    said.textContent = text.steps[to].said;
    ask.textContent = text.steps[to].ask ?? "";
    reached.textContent = "";
    next.hidden = show.hidden = again.hidden = !step.until;
    show.disabled = again.disabled = false;
    ending.replaceChildren(...(step.until ? [] : [end()]));
  }

  function end() {
    const following = lessons[at + 1]?.name;
    return element("div", {}, element("p", { class: "good" }, words.finished), element("p", { class: "row" },
      following && element("a", { href: `#/lessons/${language}/${following}` }, words.go.replace("{title}", told.lessons[following].title)),
      element("a", { href: labLink(made.text) }, words.lab), element("a", { href: `#/lessons/${language}` }, words.back)));
  }

  function changed(shown, script) {
    const step = steps[number];
    if (isEntering || !step?.until) return;
    const isRight = right(step.until, shown, script);
    reached.textContent = isRight ? words.reached : "";
    next.disabled = !isRight;
  }

  function right(goal, shown, script) {
    if (goal.expect) return shown.met[0];
    if (!script.startsWith(base)) return false;
    if (goal.did) return script.slice(base.length).split("\n").includes(goal.did);
    const first = base.split("\n").length - 1;
    return shown.runs[0].frames.some((frame) => frame.line > first && frame.events.some((event) => event.includes(goal.seen)));
  }

  await enter(0);
  return made.leave;
}

function lines(all) {
  return all.map((line) => `${line}\n`).join("");
}
