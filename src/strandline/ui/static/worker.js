// A worker with Pyodide and the node code: requests of the page in, documents out. Python is not started here: the
// page brings the memory of one that has imported everything (see snapshot.mjs).
import { loadPyodide } from "./pyodide/pyodide.mjs";
import createPyodideModule from "./pyodide/pyodide.asm.mjs";

const CHUNK = 4 << 20;
const TYPES = { wasm: "application/wasm" };

// What the page keeps compressed, as if it were not.
async function inflated(address) {
  const response = await plain(address);
  if (!response.ok) throw new Error(`${address}: ${response.status}`);
  const type = TYPES[String(address).split(".").at(-1)] ?? "application/octet-stream";
  return new Response(response.body.pipeThrough(new DecompressionStream("gzip")), { headers: { "Content-Type": type } });
}

const plain = self.fetch.bind(self);
self.fetch = (address, ...rest) => (String(address).endsWith(".wasm") ? inflated(address) : plain(address, ...rest));

// Memory that is put in place needs room: Pyodide makes none for more than it begins with.
async function withRoomFor(snapshot, settings) {
  const made = await createPyodideModule(settings);
  while (made.HEAPU8.length < snapshot.length) if (!made._malloc(CHUNK)) throw new Error("There is too little memory.");
  return made;
}

try {
  postMessage({ stage: "Loading the node code …" });
  const snapshot = new Uint8Array(await inflated(new URL("./python.memory", import.meta.url)).then((response) => response.arrayBuffer()));
  const python = await loadPyodide({
    indexURL: new URL("./pyodide/", import.meta.url).href,
    _loadSnapshot: snapshot,
    createPyodideModule: (settings) => withRoomFor(snapshot, settings),
  });
  const answers = python.runPython("from strandline.ui.lab.answers import Answers; Answers()");
  self.onmessage = ({ data: { number, path, body } }) => {
    let answer;
    try {
      answer = answers.answer(path, body ?? undefined); // of null Python would make an object
    } catch (error) {
      answer = JSON.stringify({ error: `The node code failed: ${String(error.message).trim().split("\n").at(-1)}` });
    }
    postMessage({ number, answer });
  };
  postMessage({ ready: true });
} catch (error) {
  postMessage({ failed: `The node code cannot be loaded: ${error.message}` });
}
