// node compile.mjs PYODIDE IN.zip OUT.zip: Python sources in, what Pyodide's own Python compiles them to out.
// Compiling several hundred files takes a browser seconds each time; unchecked .pyc files take none.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [pyodide, source, target] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(join(pyodide, "pyodide.mjs")).href);
const python = await loadPyodide({ indexURL: `${pyodide}/` });
python.FS.writeFile("/tmp/in.zip", new Uint8Array(readFileSync(source)));
python.runPython(`
import importlib.util, marshal, struct, zipfile

HASHED_AND_UNCHECKED = 1
with zipfile.ZipFile("/tmp/in.zip") as given, zipfile.ZipFile("/tmp/out.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
    for name in given.namelist():
        data = given.read(name)
        if name.endswith(".py"):
            code = compile(data, name, "exec", dont_inherit=True, optimize=2)
            head = importlib.util.MAGIC_NUMBER + struct.pack("<I", HASHED_AND_UNCHECKED) + importlib.util.source_hash(data)
            name, data = f"{name}c", head + marshal.dumps(code)
        made.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
`);
writeFileSync(target, python.FS.readFile("/tmp/out.zip"));
