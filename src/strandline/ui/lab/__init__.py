"""A small cluster and lessons in a browser tab: the node code in Pyodide, and the page for it."""
