"""Records that could not become rows: kept with their bytes, listed, and replayed after a fix."""
