"""Scenarios and a small cluster in a browser tab: the node code in Pyodide, and how the page is built."""
