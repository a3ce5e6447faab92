"""Where a page beside brokers is served, if it is not said."""

from __future__ import annotations

import pytest

from strandline.broker.reserved_ports import ReservedPort
from strandline.config.loopback import loopback
from strandline.errors import InvalidSetting
from strandline.ui.serving import DEFAULT_PORT, listen, listen_from


def test_the_first_free_port_is_taken() -> None:
    reserved = ReservedPort()
    first = listen_from(loopback(), reserved.number)
    second = listen_from(loopback(), reserved.number)
    ports = [each.getsockname()[1] for each in (first, second)]
    assert ports[0] == reserved.number
    assert reserved.number < ports[1]
    with pytest.raises(InvalidSetting, match="Address already in use"):
        listen(loopback(), ports[1])
    for each in (first, second):
        each.close()
    reserved.release()


def test_only_what_is_taken_is_passed_over() -> None:
    with pytest.raises(InvalidSetting, match="Cannot assign"):
        listen_from("203.0.113.1")


def test_the_default_is_what_the_help_says() -> None:
    from strandline.cli.serve import serve

    (option,) = (each for each in serve.params if each.name == "ui_port")
    assert f"[default: {DEFAULT_PORT}," in (getattr(option, "help", None) or "")
