// node snapshot.mjs PYODIDE IN.zip OUT: the memory of a Python that has imported what it needs of the sources in
// IN.zip, compressed by gzip. A browser that begins with it has nothing to start, to unpack and to import.
//
// One interpreter compiles the sources and finds what is needed (warming.py). A second one imports that and does
// nothing else: what compiling leaves in the memory would be a third of the file.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

const [pyodide, source, target] = process.argv.slice(2);
const PLACE = "/lib/strandline";
const { loadPyodide } = await import(pathToFileURL(join(pyodide, "pyodide.mjs")).href);
const BEGIN = `import sys\nsys.path.insert(0, "${PLACE}")\n`;

async function interpreter(archive, options) {
  const made = await loadPyodide({ indexURL: `${pyodide}/`, ...options });
  made.unpackArchive(archive, "zip", { extractDir: PLACE });
  return made;
}

const first = await interpreter(new Uint8Array(readFileSync(source)));
const needed = first.runPython(`${BEGIN}
import json
from strandline.ui.lab.warming import needed
json.dumps(needed())
`);
// Without docstrings, and without the columns of tracebacks.
first.runPython(`
import importlib.util, marshal, os, struct, zipfile

HASHED_AND_UNCHECKED = 1
with zipfile.ZipFile("/tmp/out.zip", "w") as made:
    for folder, _, files in os.walk("${PLACE}"):
        for file in files:
            path = os.path.join(folder, file)
            name = os.path.relpath(path, "${PLACE}")
            with open(path, "rb") as opened:
                data = opened.read()
            if name.endswith(".py"):
                code = compile(data, name, "exec", dont_inherit=True, optimize=2)
                head = importlib.util.MAGIC_NUMBER + struct.pack("<I", HASHED_AND_UNCHECKED) + importlib.util.source_hash(data)
                made.writestr(f"{name}c", head + marshal.dumps(code))
            elif not name.endswith(".pyc"):
                made.writestr(name, data)
`);
const compiled = first.FS.readFile("/tmp/out.zip");
const second = await interpreter(compiled, { _makeSnapshot: true, env: { PYTHONNODEBUGRANGES: "1" } });
second.runPython(`${BEGIN}
import gc, importlib, json
for name in json.loads('${needed}'):
    importlib.import_module(name)
from strandline.ui.lab.warming import read_all
read_all()
gc.collect()
`);
writeFileSync(target, gzipSync(second.makeMemorySnapshot(), { level: 6 }));
