"""The live page: what a cluster says about itself, in a browser."""
