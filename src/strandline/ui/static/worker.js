// A worker with Pyodide and the node code: requests of the page in, documents out.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const PLACE = "/lib/strandline";

try {
  postMessage({ stage: "Loading the node code …" });
  const code = fetch("./code.zip").then((response) => { if (!response.ok) throw new Error(`code.zip: ${response.status}`); return response.arrayBuffer(); });
  const python = await loadPyodide({ indexURL: new URL("./pyodide/", import.meta.url).href });
  python.unpackArchive(await code, "zip", { extractDir: PLACE });
  const answers = python.runPython(`
import sys
sys.path.insert(0, "${PLACE}")
from strandline.ui.lab.answers import Answers
Answers()
`);
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
