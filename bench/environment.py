"""What the figures were measured on: the line without which a benchmark says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Environment:
    """Machine and software of a session. Versions are as the programs themselves give them."""

    processor: str
    processors: int
    memory_gib: float
    kernel: str
    python: str
    java: str
    kafka: str
    librdkafka: str
    commit: str
    data_file_system: str
    load_before: float

    def line(self) -> str:
        """The machine line of a report."""
        return (
            f"{self.processors} x {self.processor}, {self.memory_gib:.0f} GiB, "
            f"Linux {self.kernel}; "
            f"Python {self.python}, {self.java}, Apache Kafka {self.kafka}, "
            f"librdkafka {self.librdkafka}; Strandline at {self.commit}; "
            f"broker data on {self.data_file_system}; load average before: {self.load_before:.2f}"
        )

    def as_json(self) -> dict[str, object]:
        """The same, for the JSON report."""
        return asdict(self)


def describe(data_directory: Path, *, kafka_jars: Path | None, java: str) -> Environment:
    """Ask the machine. What cannot be found out reads 'unknown', never a guess."""
    import confluent_kafka  # here: the pure helpers below need no client

    return Environment(
        processor=processor_name(Path("/proc/cpuinfo").read_text()),
        processors=os.cpu_count() or 0,
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30),
        kernel=platform.release(),
        python=platform.python_version(),
        java=_first_line([java, "-version"]) if kafka_jars else "no Java",
        kafka=kafka_version([jar.name for jar in kafka_jars.iterdir()]) if kafka_jars else "none",
        librdkafka=confluent_kafka.libversion()[0],
        commit=_first_line(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
        ),
        data_file_system=file_system_of(data_directory, Path("/proc/mounts").read_text()),
        load_before=os.getloadavg()[0],
    )


def processor_name(cpuinfo: str) -> str:
    """From `/proc/cpuinfo`."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return "unknown processor"


def kafka_version(jars: list[str]) -> str:
    """From the name of the broker's jar, `kafka_<scala>-<version>.jar`."""
    for jar in jars:
        if jar.startswith("kafka_") and jar.endswith(".jar"):
            return jar.removesuffix(".jar").partition("-")[2]
    return "unknown"


def file_system_of(directory: Path, mounts: str) -> str:
    """Type and mount point of the file system that holds `directory`, from `/proc/mounts`."""
    holders = [directory, *directory.parents]
    found = {Path(fields[1]): fields[2] for line in mounts.splitlines() if (fields := line.split())}
    return next((f"{found[path]} ({path})" for path in holders if path in found), "unknown")


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    lines = (done.stdout + done.stderr).splitlines()
    return lines[0] if lines and done.returncode == 0 else "unknown"
