"""Tries a Strandline that was installed: its command, its kernels, and a cluster in it.

python tools/try_installed.py --kernels compiled
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import strandline
from strandline.records._kernels import compiled

KERNELS = ("compact", "decode", "produced")
COUNT = 1000


def check_kernels(expected: str) -> None:
    """Whether the kernels are compiled, or all of them are the twins in Python."""
    found = {name for name in KERNELS if compiled(name) is not None}
    wanted = set(KERNELS) if expected == "compiled" else set()
    if found != wanted:
        sys.exit(f"Compiled kernels: {sorted(found)}; expected: {sorted(wanted)}.")


def check_command() -> None:
    """The installed command answers with the version of the package."""
    command = Path(sys.executable).with_name("strandline")
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    if strandline.__version__ not in said.stdout:
        sys.exit(
            f"strandline --version says {said.stdout!r}, and the package {strandline.__version__}."
        )


def check_cluster() -> None:
    """Three brokers take records and give them back."""
    values = [f"record {number}".encode() for number in range(COUNT)]
    with strandline.Cluster(brokers=3) as cluster:
        cluster.create_topic("tried", partitions=1, replication_factor=3)
        settings = {"bootstrap.servers": cluster.bootstrap_servers}
        with strandline.Producer(settings) as producer:
            for value in values:
                producer.send("tried", value)
        read: list[bytes | None] = []
        reading = {**settings, "group.id": "tried", "auto.offset.reset": "earliest"}
        with strandline.Consumer(reading) as consumer:
            consumer.subscribe(["tried"])
            while len(read) < COUNT:
                read += [record.value for record in consumer.poll(timeout_ms=1000)]
    if read != values:
        sys.exit(f"{COUNT} records were written, and others were read.")


def main() -> None:
    """All of it; exits with a sentence at the first thing that is wrong."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--kernels", choices=["compiled", "twins"], required=True)
    expected = words.parse_args().kernels
    check_kernels(expected)
    check_command()
    check_cluster()
    version = ".".join(map(str, sys.version_info[:3]))
    print(
        f"Python {version}, kernels {expected}: {COUNT} records written to three brokers and read."
    )


main()
