// The text of a scenario as the lab changes it: a header of `name: value` lines, an empty line, actions.

export const START = `title: A run in the lab
replicas: A B C
min-in-sync: 2
lag-max: 5s

`;

const HEADER = /^([a-z][a-z-]*)(?:\s+when\s+[^:]*)?:(?:\s+(.*))?$/;

function split(text) {
  const all = text.split("\n");
  const end = all.findIndex((line) => !line.startsWith("#") && !(HEADER.test(line) && !line.startsWith("when ")));
  return end === -1 ? [all, []] : [all.slice(0, end), all.slice(end)];
}

export function header(text, name) {
  return split(text)[0].map((line) => line.match(HEADER)).find((found) => found?.[1] === name)?.[2] ?? "";
}

// The same script with another value in its header, or without it if that is empty.
export function withHeader(text, name, value) {
  const [head, rest] = split(text);
  const others = head.filter((line) => line.match(HEADER)?.[1] !== name);
  return [...others, ...(value ? [`${name}: ${value}`] : []), ...rest].join("\n");
}

export function withLine(text, line) {
  const kept = text.replace(/\n+$/, "\n");
  const isFirst = split(kept)[1].every((each) => !each.trim());
  return `${kept}${isFirst ? "\n" : ""}${line}\n`;
}

// Without its last action, and what was noted behind the one before it.
export function withoutLast(text) {
  const [head, rest] = split(text);
  const last = rest.findLastIndex((line) => actionOf(line).length);
  return [...head, ...rest.slice(0, Math.max(last, 1)), ""].join("\n");
}

export function actionOf(line) {
  return line.split("#")[0].trim().split(/\s+/).filter(Boolean);
}

// m0, m1 and so on: the first one that was not produced yet.
export function nextValue(text) {
  const used = [...text.matchAll(/\bm(\d+)\b/g)].map((found) => Number(found[1]));
  return `m${Math.max(-1, ...used) + 1}`;
}
