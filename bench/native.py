"""Compiles the two C clients on first use and keeps them in a cache directory.

The name of a compiled program holds a digest of its sources, the flags and the library it links:
an edited source never runs as its old self, and two checkouts can share one cache.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent
FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Wshadow")


class BuildError(Exception):
    """A client could not be compiled; the sentence holds the compiler's own words."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Paths of the compiled clients."""

    loadgen: Path
    rdperf: Path


def build(cache: Path) -> Tools:
    """Compile what is not yet in `cache`. Raises BuildError."""
    return Tools(
        loadgen=_compile("loadgen", cache, link=()),
        rdperf=_compile("rdperf", cache, link=_librdkafka()),
    )


def default_cache() -> Path:
    """`STRANDLINE_BENCH_CACHE`, or a folder in the user's cache directory."""
    chosen = os.environ.get("STRANDLINE_BENCH_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "strandline-bench"


def _librdkafka() -> tuple[str, ...]:
    """Linker arguments for the librdkafka inside the confluent-kafka wheel; where the package was
    built against a library of the system instead, for that one."""
    import confluent_kafka  # here, because it is wanted only where a client is to be built

    bundled = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(bundled.glob("librdkafka*.so*"))
    if not found:
        return ("-lrdkafka",)
    return (f"-L{bundled}", f"-l:{found[0].name}", f"-Wl,-rpath,{bundled}")


def _compile(name: str, cache: Path, *, link: tuple[str, ...]) -> Path:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    digest = hashlib.sha256(repr((compiler, FLAGS, link)).encode())
    for source in sorted([*SOURCES.glob("*.h"), SOURCES / f"{name}.c"]):
        digest.update(source.read_bytes())
    program = cache / f"{name}-{digest.hexdigest()[:16]}"
    if program.exists():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = program.with_suffix(f".{os.getpid()}")
    command = [*compiler, *FLAGS, "-o", str(unfinished), str(SOURCES / f"{name}.c"), *link]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BuildError(f"a C compiler is needed to build {name}: {error}") from error
    if done.returncode:
        raise BuildError(f"{shlex.join(command)} failed:\n{done.stderr}")
    unfinished.rename(program)
    return program
