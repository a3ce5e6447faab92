"""kcat, the command line client on librdkafka, as people have it from their distribution.

Here the program is the subject: its options, its formats, and an older librdkafka than the one that
the Python binding brings along.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.support import WAIT_SECONDS, BrokerProcess

KCAT = shutil.which("kcat") or shutil.which("kafkacat")

pytestmark = pytest.mark.skipif(KCAT is None, reason="there is no kcat on the path")


def kcat(broker: BrokerProcess, *arguments: str, stdin: str = "") -> str:
    """Run kcat against the broker; returns what it prints, fails if it does."""
    assert KCAT is not None
    finished = subprocess.run(
        [KCAT, "-b", broker.address, *arguments],
        input=stdin.encode(),
        capture_output=True,
        timeout=2 * WAIT_SECONDS,
    )
    assert finished.returncode == 0, finished.stderr.decode(errors="replace")
    return finished.stdout.decode()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_there_and_back(broker: BrokerProcess, topic: str, codec: str) -> None:
    lines = "".join(f"line {n} {'x' * (n % 300)}\n" for n in range(2000))
    kcat(broker, "-P", "-t", topic, "-p", "1", "-z", codec, stdin=lines)
    read = kcat(broker, "-C", "-t", topic, "-p", "1", "-o", "beginning", "-e", "-q")
    assert read == lines
    checked = kcat(
        broker, "-C", "-t", topic, "-p", "1", "-e", "-q", "-X", "check.crcs=true", "-c", "10"
    )
    assert checked == "".join(lines.splitlines(keepends=True)[:10])


@pytest.mark.parametrize("acks", ["0", "1", "-1"])
def test_acknowledgements(broker: BrokerProcess, topic: str, acks: str) -> None:
    kcat(
        broker, "-P", "-t", topic, "-p", "0", "-X", f"request.required.acks={acks}", stdin="a\nb\n"
    )
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-c", "2", "-q") == "a\nb\n"


def test_idempotent_producer(broker: BrokerProcess, topic: str) -> None:
    lines = "".join(f"{n}\n" for n in range(3000))
    kcat(broker, "-P", "-t", topic, "-p", "2", "-X", "enable.idempotence=true", stdin=lines)
    assert kcat(broker, "-C", "-t", topic, "-p", "2", "-e", "-q") == lines


def test_keys_headers_and_formats(broker: BrokerProcess, topic: str) -> None:
    kcat(
        *(broker, "-P", "-t", topic, "-p", "3", "-K", ":", "-Z"),
        *("-H", "from=kcat", "-H", "n=1"),
        stdin="k1:v1\nk2:\n:v3\n",
    )
    shown = kcat(
        *(broker, "-C", "-t", topic, "-p", "3", "-e", "-q", "-Z"),
        *("-f", "%t %p %o %k %K %s %S %h\\n"),
    )
    assert shown.splitlines() == [
        f"{topic} 3 0 k1 2 v1 2 from=kcat,n=1",
        f"{topic} 3 1 k2 2 NULL -1 from=kcat,n=1",
        f"{topic} 3 2 NULL -1 v3 2 from=kcat,n=1",
    ]


def test_json_envelopes(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K", ":", "-H", "a=b", stdin="key:value\n")
    shown = json.loads(kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", "-J"))
    assert shown["topic"] == topic
    assert (shown["partition"], shown["offset"], shown["broker"]) == (0, 0, 1)
    assert (shown["key"], shown["payload"], shown["headers"]) == ("key", "value", ["a", "b"])
    assert shown["tstype"] == "create"


def test_offsets(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin="".join(f"{n}\n" for n in range(10)))

    def read(*arguments: str) -> list[str]:
        return kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", *arguments).split()

    assert read("-o", "7") == ["7", "8", "9"]
    assert read("-o", "-2") == ["8", "9"]
    assert read("-o", "end") == []
    assert read("-o", "s@0", "-c", "1") == ["0"]
    assert read("-o", "3", "-c", "2") == ["3", "4"]


def test_files_are_one_message_each(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    paths = []
    for n in range(3):
        path = tmp_path / f"file-{n}"
        path.write_text(f"first of {n}\nsecond\n")
        paths.append(str(path))
    kcat(broker, "-P", "-t", topic, "-p", "0", *paths)
    shown = kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", "-f", "%s|")
    assert shown == "".join(f"first of {n}\nsecond\n|" for n in range(3))


def test_metadata(broker: BrokerProcess, topic: str) -> None:
    everything = json.loads(kcat(broker, "-L", "-J"))
    [node] = everything["brokers"]
    assert node["name"] == broker.address
    assert everything["controllerid"] == node["id"]
    assert topic in {found["topic"] for found in everything["topics"]}
    [one] = json.loads(kcat(broker, "-L", "-J", "-t", topic))["topics"]
    assert [part["partition"] for part in one["partitions"]] == [0, 1, 2, 3]
    assert all(part["isrs"] == [{"id": node["id"]}] for part in one["partitions"])
    assert f'topic "{topic}" with 4 partitions:' in kcat(broker, "-L")


def test_offset_query(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "1", stdin="a\nb\nc\n")

    def asked(timestamp: int) -> str:
        return kcat(broker, "-Q", "-t", f"{topic}:1:{timestamp}").strip()

    assert asked(-1) == f"{topic} [1] offset 3"
    assert asked(-2) == f"{topic} [1] offset 0"
    assert asked(1) == f"{topic} [1] offset 0"


def test_group(broker: BrokerProcess, topic: str, name: str) -> None:
    """The balanced consumer; a second run goes on where the first one ended."""
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin="a\nb\nc\n")
    options = ("-X", "auto.offset.reset=earliest", "-q", "-f", "%s\\n")
    assert kcat(broker, *options, "-c", "3", "-G", name, topic).split() == ["a", "b", "c"]
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin="d\n")
    assert kcat(broker, *options, "-c", "1", "-G", name, topic).split() == ["d"]


def test_creation_of_a_topic_by_use(broker: BrokerProcess, name: str) -> None:
    kcat(broker, "-P", "-t", name, stdin="hello\n")
    assert kcat(broker, "-C", "-t", name, "-e", "-q") == "hello\n"
