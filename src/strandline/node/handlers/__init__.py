"""One file per API or family of APIs: from a decoded request to its answer."""
