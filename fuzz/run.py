"""Coverage-guided fuzzing with atheris: `python fuzz/run.py --target NAME --seconds N`.

`--target all` takes every target in turn and shares the seconds out; `--target mixed` takes all of
them in one process, which suits a short look. Inputs that reach new code are
kept in `--corpus DIRECTORY`, if given; an input that finds something is written to
`crash-<hash>` in the current directory and can be repeated with `--input FILE`.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

MEGABYTES_MAX = 1024
SECONDS_PER_INPUT_MAX = 10


def main() -> int:
    """Fuzz, and return how many targets found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--input", type=Path, help="run this one input and nothing else")
    options = parser.parse_args()

    from fuzz.targets import TARGETS, mixed

    if options.input is not None:
        {**TARGETS, "mixed": mixed}[options.target](options.input.read_bytes())
        return 0
    names = list(TARGETS) if options.target == "all" else [options.target]
    seconds = max(1, options.seconds // len(names))
    findings = 0
    for name in names:
        # libFuzzer ends its process: each target has one of its own.
        process = multiprocessing.get_context("spawn").Process(
            target=_fuzz, args=(name, seconds, options.corpus)
        )
        process.start()
        process.join()
        print(f"{name}: {'nothing found' if process.exitcode == 0 else 'FOUND SOMETHING'}")
        findings += process.exitcode != 0
    return findings


def _fuzz(name: str, seconds: int, corpus: Path | None) -> None:
    # In the child only, whose process it takes over; and without types.
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["strandline", "fuzz.targets", "fuzz.node_world"]):
        from fuzz.seeds import seeds_of
        from fuzz.targets import TARGETS, mixed
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) if corpus is None else corpus / name
        directory.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds_of(name)):
            (directory / f"seed-{number}").write_bytes(seed)
        arguments = [
            sys.argv[0],
            f"-max_total_time={seconds}",
            f"-rss_limit_mb={MEGABYTES_MAX}",
            f"-malloc_limit_mb={MEGABYTES_MAX // 4}",
            f"-timeout={SECONDS_PER_INPUT_MAX}",
            "-print_final_stats=0",
            "-verbosity=0",
            str(directory),
        ]
        atheris.Setup(arguments, {**TARGETS, "mixed": mixed}[name])
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
