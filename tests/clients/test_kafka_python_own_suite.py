"""kafka-python's own integration tests, from its source distribution, against our broker.

They run as that library runs them against Kafka 2.8 and 4.1 (KAFKA_VERSION decides how it speaks),
and once more against the version that it takes us for. What cannot pass is deselected by name, each
with its reason; docs/compatibility.md has the same table. A test that is deselected but would pass
is a failure, too: `test_deselected_tests_still_fail`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from strandline.tar_files import unpack_tar
from tests.clients.support import SOURCES, BrokerProcess

pytestmark = pytest.mark.timeout(1200)

VERSION: Final = "3.0.12"
CACHE: Final = Path(
    os.environ.get("STRANDLINE_TEST_CACHE", str(Path.home() / ".cache" / "strandline-tests"))
)
INFERRED: Final = "4.3"
"""The Kafka version that kafka-python takes us for."""
SUITE_SECONDS: Final = 900
AGAIN: Final = 2

_TLS = "Starts a broker with TLS of its own from Kafka's distribution."
_OLD_CONFIG = (
    "Kafka 2.8 could change `advertised.listeners` at run time; Kafka 4, whose settings these are, "
    "cannot."
)
_INFERRED = "The versions of requests that are served are those of Kafka 4.3."
_NO_QUORUM = "Metadata is not kept by a Raft quorum, so there is none to describe."

ADMIN: Final = "test_admin_integration.py"
CONSUMER: Final = "test_consumer_integration.py"
TLS: Final = "test_ssl_integration.py"

ALWAYS: Final = {
    f"{TLS}::TestSSLConnection::test_ssl_handshake": _TLS,
    f"{TLS}::TestSSLConnection::test_legacy_kafka_client_ssl": _TLS,
}
_QUORUM = {f"{ADMIN}::test_describe_metadata_quorum": _NO_QUORUM}
_INFER = {f"{CONSUMER}::test_kafka_version_infer": _INFERRED}
DESELECTED: Final[dict[str, dict[str, str]]] = {
    "2.8": {
        **ALWAYS,
        **_INFER,
        f"{ADMIN}::test_describe_configs_broker_resource_returns_configs": _OLD_CONFIG,
    },
    "4.1": {**ALWAYS, **_QUORUM, **_INFER},
    INFERRED: {**ALWAYS, **_QUORUM},
}
PASSING: Final = {"2.8": 49, "4.1": 53, INFERRED: 54}
"""How many tests pass for each version, so that none is lost by being skipped.

The library skips its tests with SASL (it would start a broker of its own for them), and those for
other versions of Kafka than the one that is asked for.
"""

# The distribution lacks the module that starts Kafka's scripts. Nothing is to be started here.
_SERVICE = '''
class ExternalService:
    """Stands for a broker that runs already."""

    def __init__(self, host, port):
        pass

    def dump_logs(self):
        pass


class SpawnedService:
    """Stands for Kafka's scripts, which are not here."""

    def __init__(self, args, env):
        raise RuntimeError("Kafka's scripts are not here.")
'''


def source_distribution() -> Path:
    """The archive, downloaded by pip once and kept."""
    CACHE.mkdir(parents=True, exist_ok=True)
    archive = CACHE / f"kafka_python-{VERSION}.tar.gz"
    if not archive.exists():
        # Several processes of a test run may do this at once: each sees a whole archive or none.
        with tempfile.TemporaryDirectory(dir=CACHE) as own:
            subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download"),
                    *("--quiet", "--no-deps", "--no-binary", ":all:", "--dest", own),
                    f"kafka-python=={VERSION}",
                ],
                check=True,
                timeout=500,
            )
            (Path(own) / archive.name).replace(archive)
    return archive


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the library's `test` package, made complete."""
    target = tmp_path_factory.mktemp("kafka-python")
    with tarfile.open(source_distribution()) as archive:
        prefix = f"kafka_python-{VERSION}/"
        members = [m for m in archive.getmembers() if m.name.startswith(f"{prefix}test/")]
        for member in members:
            member.name = member.name.removeprefix(prefix)
        unpack_tar(archive, target, members)
    # Without this the standard library's package of the same name would be found.
    (target / "test" / "__init__.py").touch()
    (target / "test" / "service.py").write_text(_SERVICE)
    (target / "empty.ini").write_text("[pytest]\n")
    return target


@pytest.fixture(params=list(DESELECTED))
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def their_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with the settings that the library's own fixture gives to Kafka's."""
    settings = {
        "node.id": "0",
        "num.partitions": "4",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with BrokerProcess(tmp_path, settings) as running:
        yield running


def run(suite: Path, broker: BrokerProcess, version: str, *arguments: str) -> str:
    """Run the library's tests; returns what pytest says."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "KAFKA_ROOT": str(suite),
        "KAFKA_URI": f"kafka://{broker.address}",
        "KAFKA_VERSION": version,
        "PYTHONPATH": str(suite),
    }
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", str(suite / "empty.ini")),
            *("--rootdir", str(suite), "-p", "no:cacheprovider", "-p", "no:xdist"),
            *("-q", "-rA", "--tb=short", "--timeout=240", *arguments),
        ],
        cwd=suite,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS,
    )
    return finished.stdout + finished.stderr


def outcomes(said: str, *kinds: str) -> set[str]:
    """The tests of which the summary says one of the given words."""
    pattern = rf"^(?:{'|'.join(kinds)}) test/integration/(\S+)"
    return set(re.findall(pattern, said, re.MULTILINE))


def test_suite(suite: Path, their_broker: BrokerProcess, version: str) -> None:
    """Everything passes but what is deselected by name.

    Some of the library's tests give a broker two seconds, which a machine that is busy with other
    tests may not have for it: what fails is tried again alone, and has to pass then.
    """
    without = [f"--deselect=test/integration/{test}" for test in DESELECTED[version]]
    said = run(suite, their_broker, version, "test/integration", *without)
    passed, failed = outcomes(said, "PASSED"), outcomes(said, "FAILED", "ERROR")
    for _ in range(AGAIN):
        if not failed:
            break
        again = run(suite, their_broker, version, *(f"test/integration/{test}" for test in failed))
        assert outcomes(again, "PASSED", "FAILED", "ERROR") >= failed, again
        passed |= outcomes(again, "PASSED")
        failed = outcomes(again, "FAILED", "ERROR")
    assert failed == set(), said
    assert len(passed) == PASSING[version], said


def test_documentation_has_every_deselection(version: str) -> None:
    """The table of docs/compatibility.md names each test with its reason."""
    text = (SOURCES.parent / "docs" / "compatibility.md").read_text()
    for test, reason in DESELECTED[version].items():
        name = test.partition("::")[2]
        assert any(name in line and reason in line for line in text.splitlines()), name


def test_deselected_tests_still_fail(
    suite: Path, their_broker: BrokerProcess, version: str
) -> None:
    """A deselection whose reason is gone must go, too."""
    tests = [f"test/integration/{test}" for test in DESELECTED[version]]
    said = run(suite, their_broker, version, *tests)
    assert outcomes(said, "PASSED") == set(), said
    assert outcomes(said, "FAILED", "ERROR") == set(DESELECTED[version]), said
