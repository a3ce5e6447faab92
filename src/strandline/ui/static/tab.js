// The page without a server: what it asks is answered by the node code, in a worker of this tab.
import { answerInside } from "./dom.js";
import { sentence, spoken, whenSpoken } from "./words.js";

const PATIENCE_MS = 30_000; // a script may wait for a year of simulated time

let worker = null;
let ready = null;
let last = 0;
const waiting = new Map();

function start() {
  worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  ready = new Promise((resolve, reject) => {
    worker.addEventListener("message", ({ data }) => {
      if (data.ready) { said(""); document.documentElement.dataset.ready = String(Math.round(performance.now())); resolve(); return; }
      if (data.stage) { said(data.stage); return; }
      if (data.failed) { said(data.failed); reject(new Error(data.failed)); return; }
      waiting.get(data.number)?.(JSON.parse(data.answer));
      waiting.delete(data.number);
    });
    worker.addEventListener("error", (event) => reject(new Error(event.message || "The node code cannot be loaded.")));
  });
  ready.catch(() => {});
}

function said(text) {
  const place = document.getElementById("said");
  if (!place) return;
  const show = () => Object.assign(place, { lang: spoken(), textContent: sentence(text) });
  whenSpoken(show);
  show();
}

async function answer(path, body) {
  if (path === "/api/moments") return { error: "There is no cluster behind this page." };
  await ready;
  const number = last += 1;
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      waiting.delete(number);
      worker.terminate();
      start();
      resolve({ error: `The script was not at its end after ${PATIENCE_MS / 1000} s of computing.` });
    }, PATIENCE_MS);
    waiting.set(number, (found) => { clearTimeout(timer); resolve(found); });
    worker.postMessage({ number, path, body: body === undefined ? null : JSON.stringify(body) });
  });
}

// Only here: a server plays each script anew, which would make a lesson slow.
document.querySelector("header nav").prepend(Object.assign(document.createElement("a"), { href: "#/lessons", textContent: "Lessons" }));
start();
answerInside(answer);
if ("serviceWorker" in navigator && location.protocol !== "file:") navigator.serviceWorker.register("./offline.js").catch(() => {});
await import("./main.js");
