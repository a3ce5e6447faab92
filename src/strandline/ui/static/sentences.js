// What brokers and scenarios say, in the language of the page. They say it in English; a table has each sentence
// with its places ({}), and the same in another language ({0}, {1}). What stands in a place is told in the same way.
import { spoken } from "./words.js";

let templates = [];
let ready = null; // what is loaded; English needs nothing

export async function learn(code) {
  if (code === "en" || ready === code) return;
  const response = await fetch(new URL(`./lessons/sentences.${code}.json`, import.meta.url));
  if (!response.ok) throw new Error(`The sentences cannot be loaded: ${response.status}`);
  templates = Object.entries(await response.json()).map(([english, other]) => {
    const pattern = english.split("{}").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("(.+?)");
    return { pattern: new RegExp(`^${pattern}$`, "s"), other, weight: english.replaceAll("{}", "").length };
  }).sort((one, two) => two.weight - one.weight); // the most exact one first
  ready = code;
}

const SEPARATORS = [[/(?<=\.) /, ""], ["; ", "；"], [", ", "，"]];

// The sentence in the language of the page, or null if it is not in its table. A place takes a list of facts only if
// the facts are not told one by one.
export function found(text) {
  return whole(text, (places) => !places.some((each) => /[;,] /.test(each))) ?? inParts(text) ?? whole(text, () => true);
}

function whole(text, fits) {
  for (const { pattern, other } of templates) {
    const match = text.match(pattern);
    if (match && fits(match.slice(1))) return other.replace(/\{(\d)\}/g, (_, at) => told(match[Number(at) + 1]));
  }
  return null;
}

function inParts(text) {
  for (const [separator, joint] of SEPARATORS) {
    const parts = text.split(separator);
    if (parts.length < 2) continue;
    const all = parts.map(found);
    if (all.every((each) => each !== null)) return all.join(joint);
  }
  return null;
}

export function told(text) {
  return spoken() === ready ? found(text) ?? text : text;
}
