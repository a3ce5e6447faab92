"""A log that does not grow because something stays wrong."""

from __future__ import annotations

import io
import logging

from strandline.cli.log_lines import TEXTS_MAX, SparingHandler


class Log:
    """A logger with the handler under test, and a clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.stream = io.StringIO()
        handler = SparingHandler(self.stream, lambda: self.now_s)
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        self.logger = logging.Logger("under test")
        self.logger.addHandler(handler)

    def lines(self) -> list[str]:
        found = self.stream.getvalue().splitlines()
        self.stream.seek(0)
        self.stream.truncate()
        return found


def test_a_message_is_written_once_a_minute_with_a_count() -> None:
    log = Log()
    for _ in range(500):
        log.logger.warning("No connection can be accepted now: %s", "Too many open files")
    assert log.lines() == ["WARNING No connection can be accepted now: Too many open files"]
    log.now_s += 61
    log.logger.info("Something else")
    assert log.lines() == [
        "WARNING No connection can be accepted now: Too many open files "
        "(499 times more within 60 s)",
        "INFO Something else",
    ]
    log.logger.warning("No connection can be accepted now: %s", "Too many open files")
    assert len(log.lines()) == 1


def test_other_values_are_other_messages() -> None:
    log = Log()
    for number in (1, 2, 1, 2):
        log.logger.error("Broker %d is gone", number)
    assert log.lines() == ["ERROR Broker 1 is gone", "ERROR Broker 2 is gone"]
    log.now_s += 61
    log.logger.error("Broker 1 is gone")
    assert log.lines() == [
        "ERROR Broker 1 is gone (once more within 60 s)",
        "ERROR Broker 2 is gone (once more within 60 s)",
        "ERROR Broker 1 is gone",
    ]


def test_what_happened_is_written_every_time() -> None:
    log = Log()
    for _ in range(3):
        log.logger.info("A topic was made")
    assert log.lines() == ["INFO A topic was made"] * 3


def test_a_thousand_partitions_that_fail_alike_are_a_few_lines() -> None:
    log = Log()
    for _ in range(2):
        for number in range(1000):
            log.logger.error("An append to orders-%d failed: %s", number, "No space left on device")
    log.logger.error("Another kind")
    assert len(log.lines()) == TEXTS_MAX + 1
    log.now_s += 61
    log.logger.info("Something else")
    told = log.lines()
    assert len(told) == TEXTS_MAX + 2
    assert told[TEXTS_MAX] == (
        "ERROR An append to orders-999 failed: No space left on device "
        "(the last of 1960 more lines like it within 60 s)"
    )


def test_sentences_that_are_made_elsewhere_are_kinds_of_their_own() -> None:
    log = Log()
    for number in range(1500):
        log.logger.warning("%s", f"The log of orders-{number} was cut.")
    log.logger.warning("%s", "The log of orders-3 was cut.")
    assert len(log.lines()) == 1500


def test_a_traceback_is_written_with_the_first_line_only() -> None:
    log = Log()
    for _ in range(3):
        try:
            int("bad")
        except ValueError:
            log.logger.exception("It failed")
    written = log.lines()
    assert written[0] == "ERROR It failed"
    assert sum(line.startswith("Traceback") for line in written) == 1
