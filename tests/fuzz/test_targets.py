"""The fuzz targets on mutated seeds, every time: declared errors only, and no bombs.

Coverage-guided fuzzing (`fuzz/run.py`) goes deeper; the last test runs it for a few seconds.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tracemalloc
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.seeds import mutated, seeds_of
from fuzz.targets import TARGETS
from tests.alone import run_alone

ROOT = Path(__file__).parents[2]
EXAMPLES = {"node": 250, "recovery": 200, "properties": 300}
# What an object of the decoders may weigh per byte of input, and what they need at least.
BYTES_PER_BYTE = 600
BYTES_ALWAYS = 2 << 20
SMOKE_SECONDS = 10


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_their_neighbours(name: str) -> None:
    random = Random(name)
    seeds = seeds_of(name)
    for seed in seeds:
        TARGETS[name](seed)
    for _ in range(EXAMPLES.get(name, 3000)):
        data = mutated(random.choice(seeds), random)
        try:
            TARGETS[name](data)
        except Exception as error:
            raise AssertionError(f"{name} failed for {data.hex()}") from error


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "node"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.binary(max_size=200))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize(
    "name",
    [
        "requests",
        "responses",
        "framing",
        "records",
        "batches",
        "snapshots",
        "checkpoints",
        "group_records",
    ],
)
def test_what_is_announced_is_not_allocated(name: str) -> None:
    """Lengths are compared with what is there before anything is made for them."""
    run_alone(measure, name)


def measure(name: str) -> None:
    random = Random(5)
    seeds = seeds_of(name)
    for seed in seeds:
        TARGETS[name](seed)  # decoders are made on their first use
    tracemalloc.start()
    try:
        for _ in range(1500):
            data = bytearray(mutated(random.choice(seeds), random))
            at = random.randrange(len(data) + 1)
            data[at : at + 4] = random.choice([b"\x7f\xff\xff\xff", b"\x7e\xff\xff\xff\x07"])
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            TARGETS[name](bytes(data))
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < BYTES_ALWAYS + BYTES_PER_BYTE * len(data), data.hex()
    finally:
        tracemalloc.stop()


@pytest.mark.fuzz
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_a_few_seconds_of_coverage_guided_fuzzing(tmp_path: Path) -> None:
    run = subprocess.run(
        [
            sys.executable,
            str(ROOT / "fuzz" / "run.py"),
            "--target=mixed",
            f"--seconds={SMOKE_SECONDS}",
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
    assert run.stdout.strip() == "mixed: nothing found"
