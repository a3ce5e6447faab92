"""`tools/environment.sh`, which makes the virtual environment of ./demo and ./check.

Here it makes that of a very small project without requirements, whose build counts how often it
ran: in odd places, again, and after an end in the middle. `python -m tests.machines` lets it make
the real one on bare machines.

Most of what an environment costs is that `python -m venv` unpacks pip into it. So most tests give a
Python that links the pip of the tests' own environment instead, which the script cannot tell.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
EXTRAS = """
[project.optional-dependencies]
spark = ["strandline[held]"]
lake = ["strandline[held]"]
held = ["strandline>=1"]
"""
BACKEND = """
import os, time, zipfile

def build_editable(directory, config_settings=None, metadata_directory=None):
    if os.path.exists("stall"):
        open("stalled", "w").close()
        time.sleep(600)  # ended from outside
    if os.path.exists("broken"):
        raise SystemExit("this build is broken")
    with open("builds", "a") as builds:
        builds.write("x")
    name = "strandline-1-py3-none-any.whl"
    about = "Metadata-Version: 2.1\\nName: strandline\\nVersion: 1\\nProvides-Extra: spark\\n"
    tags = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("strandline.pth", os.path.abspath("src") + "\\n")
        wheel.writestr("strandline-1.dist-info/METADATA", about)
        wheel.writestr("strandline-1.dist-info/WHEEL", tags)
        wheel.writestr("strandline-1.dist-info/RECORD", "")
    return name

build_wheel = build_editable
"""
LINKING_PYTHON = """\
#!/bin/sh
if [ "$1 $2" != "-m venv" ]; then exec "{python}" "$@"; fi
"{python}" -m venv --without-pip "$3" && ln -s "{pip}" "$3"/lib/python3*/site-packages/
"""
COMMAND = "import os, sys; print(os.path.realpath(sys.prefix), *sys.argv[1:], sep='|')"


class Checkout:
    """A folder as after `git clone`, with ./demo and what it needs, of that small project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kernels = folder / "src/strandline/records/_kernels"
        command = folder / "src/strandline/cli"
        for each in (kernels, command, folder / "tools"):
            each.mkdir(parents=True)
        shutil.copy(ROOT / "demo", folder)
        shutil.copy(ROOT / "tools/environment.sh", folder / "tools")
        (folder / "pyproject.toml").write_text(PYPROJECT)
        (folder / "backend.py").write_text(BACKEND)
        (folder / "setup.py").write_text("")
        (kernels / "one.pyx").write_text("one")
        (kernels / "one.h").write_text("")
        (command / "__init__.py").write_text("")
        (command / "__main__.py").write_text(COMMAND)
        self.python = folder.with_name("linking python")
        self.python.write_text(LINKING_PYTHON.format(python=sys.executable, pip=_own_pip()))
        self.python.chmod(0o755)

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """./demo, called from elsewhere, in a process group of its own, which Ctrl-C ends.

        A script that starts the tests in the background (`./check &`) makes them ignore SIGINT, as
        POSIX has it for such a shell, and a process that ignores a signal hands that on to all that
        it starts: bash, pip and the build would go on.
        """
        kept = {name: text for name, text in os.environ.items() if not name.startswith("LC_")}
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # is not handed on
        try:
            return subprocess.Popen(
                [self.folder / "demo", *words],
                cwd="/",
                env={
                    **kept,
                    "PIP_NO_INDEX": "1",
                    "STRANDLINE_USE_UV": "0",
                    "PYTHON": str(self.python),
                    **environment,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                start_new_session=True,
            )
        finally:
            signal.signal(signal.SIGINT, before)

    def run(self, *words: str, **environment: str) -> str:
        """What ./demo printed. It must have been the command in the folder's own environment."""
        process = self.start(*words, **environment)
        said, wrong = process.communicate()
        assert process.returncode == 0, wrong
        place = environment.get("STRANDLINE_VENV", str(self.folder / ".venv"))
        assert said == "|".join((os.path.realpath(place), "demo", *words)) + "\n"
        return wrong

    def refusal(self, **environment: str) -> str:
        process = self.start(**environment)
        said, wrong = process.communicate()
        assert process.returncode == 1
        assert not said
        return wrong

    @property
    def builds(self) -> int:
        """How often the package was built."""
        file = self.folder / "builds"
        return len(file.read_text()) if file.exists() else 0


def _own_pip() -> Path:
    """The folder of the package pip."""
    found = find_spec("pip")
    assert found is not None, "environment.sh puts pip into each environment"
    assert found.origin is not None
    return Path(found.origin).parent


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a folder of ä and 水")


@pytest.mark.parametrize("language", ["C", "C.UTF-8", "POSIX"])
def test_an_odd_path_in_every_locale_twice_in_a_row(checkout: Checkout, language: str) -> None:
    """In C with the Python that the script finds itself, which unpacks its pip."""
    given = {"LC_ALL": language, **({"PYTHON": "python3"} if language == "C" else {})}
    assert "making the virtual environment" in checkout.run("--records", "2 0", **given)
    assert checkout.run(**given) == "", "the second time there is nothing to do"
    assert checkout.builds == 1


def test_offline_the_second_time(checkout: Checkout) -> None:
    checkout.run()
    (checkout.folder / "broken").touch()  # whatever is to be built or fetched now fails
    assert checkout.run() == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "pyproject.toml").write_text(PYPROJECT + "# more"),
        lambda folder: (folder / "src/strandline/records/_kernels/one.pyx").write_text("two"),
        lambda folder: (folder / ".venv/bin/python").unlink(),
        lambda folder: (folder / ".venv/made-for-spark").unlink(),
        lambda folder: shutil.rmtree(folder / ".venv"),
    ],
    ids=["packages", "kernels", "no Python", "another extra", "removed"],
)
def test_what_it_is_made_from_changes(checkout: Checkout, change: Callable[[Path], object]) -> None:
    checkout.run()
    change(checkout.folder)
    checkout.run()
    assert checkout.builds == 2


def test_an_extra_that_follows_brings_its_packages_and_builds_nothing(checkout: Checkout) -> None:
    """As in ./check, where the simulator runs meanwhile."""
    (checkout.folder / "pyproject.toml").write_text(PYPROJECT + EXTRAS)
    demo = checkout.folder / "demo"
    first, line, rest = demo.read_text().partition('\nenvironment "$extra"')
    demo.write_text(f"{first}\nenvironment alone{line}{rest}")
    checkout.run("--lake", "s3")
    assert checkout.builds == 1
    assert (checkout.folder / ".venv/needs-lake").read_text() == "strandline>=1\n"
    assert not (checkout.folder / ".venv/needs-spark").exists()
    assert checkout.run("--lake", "s3") == ""


def test_the_folder_was_moved(checkout: Checkout) -> None:
    checkout.run()
    left = checkout.folder.rename(checkout.folder.with_name("elsewhere"))
    checkout.folder = left
    checkout.run()
    assert checkout.builds == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_in_the_middle(checkout: Checkout, number: signal.Signals) -> None:
    (checkout.folder / "stall").touch()
    process = checkout.start()
    deadline = time.monotonic() + PATIENCE_S
    while not (checkout.folder / "stalled").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)  # between two looks
    os.killpg(process.pid, number)
    process.communicate()
    assert process.returncode != 0
    (checkout.folder / "stall").unlink()
    assert (checkout.folder / ".venv/bin/python").exists(), "something was left half made"
    checkout.run()
    assert checkout.builds == 1
    assert checkout.run() == ""


def test_packages_that_cannot_be_had(checkout: Checkout) -> None:
    (checkout.folder / "broken").touch()
    said = checkout.refusal()
    assert "this build is broken" in said
    assert said.splitlines()[-1].startswith("demo: .venv could not be made; see above.")
    (checkout.folder / "broken").unlink()
    checkout.run()
    assert checkout.builds == 1


def test_two_at_once_make_one(checkout: Checkout) -> None:
    processes = [checkout.start() for _ in range(3)]
    for process in processes:
        _, wrong = process.communicate()
        assert process.returncode == 0, wrong
    assert checkout.builds == 1


def test_a_folder_that_is_no_environment_is_left_alone(checkout: Checkout) -> None:
    mine = checkout.folder / ".venv" / "letters"
    mine.parent.mkdir()
    mine.write_text("dear")
    assert ".venv is something else than a virtual environment" in checkout.refusal()
    assert mine.read_text() == "dear"
    checkout.run(STRANDLINE_VENV=str(checkout.folder.parent / "other venv"))


def test_a_python_that_is_too_old_is_named(checkout: Checkout) -> None:
    old = checkout.folder / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.2\nexit 1\n')
    old.chmod(0o755)
    said = checkout.refusal(PYTHON=str(old))
    assert f"Python 3.11 or later is needed; {old} is Python 3.9.2." in said
    assert not (checkout.folder / ".venv").exists()


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_uv_is_used_where_it_is(checkout: Checkout) -> None:
    offline = {"STRANDLINE_USE_UV": "1", "UV_OFFLINE": "1", "PYTHON": "python3"}
    checkout.run(**offline)
    assert "uv" in (checkout.folder / ".venv/pyvenv.cfg").read_text()
    assert checkout.run(**offline) == ""
    assert checkout.builds == 1


@pytest.mark.parametrize(
    ("printed", "is_tried_again"),
    [("invalid peer certificate: UnknownIssuer", True), ("no such package", False)],
)
def test_uv_gets_the_certificates_of_the_system_where_its_own_do_not_suffice(
    tmp_path: Path, printed: str, is_tried_again: bool
) -> None:
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\n[ "$UV_SYSTEM_CERTS" = 1 ] && exit 0\necho {printed} >&2\nexit 2\n')
    uv.chmod(0o755)
    script = '. "$1"; uv=$2; set +e; _uv pip install x'
    done = subprocess.run(
        ["bash", "-c", script, "demo", str(ROOT / "tools/environment.sh"), str(uv)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode == 0) is is_tried_again
    assert ("with the certificates of this system" in done.stderr) is is_tried_again
    assert (printed in done.stderr) is not is_tried_again
