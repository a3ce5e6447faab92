"""Log lines for a person: what is said again and again is said once a minute, with a count.

What has run out stays so for a while, and every attempt fails alike. The first line of a text is
written at once; its repetitions within a minute are counted, and told with the first line of any
kind that is written after the minute. Texts that differ only in their values (a partition, an
address) are of one kind: of these the first few are written, the others counted together, so that
a thousand partitions that fail alike are a few lines as well.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TextIO

PAUSE_S: Final = 60.0
TEXTS_MAX: Final = 20
"""So many texts of one kind are written within the pause."""


_NO_TEMPLATES: Final = ("%s",)
"""Such a call says anything: sentences that are made elsewhere."""
_KINDS_MAX: Final = 1000
_KAZOO: Final = "strandline.broker.zookeeper_session"


class _Kind(NamedTuple):
    """What a logging call says, whatever its values are."""

    logger: str
    level: int
    template: str


@dataclass(slots=True)
class _Said:
    """Lines of one kind since the first of them."""

    since_s: float
    repeated: dict[str, int] = field(default_factory=dict)
    """How often each text came again."""
    others: int = 0
    """Lines with further texts."""
    newest: str = ""
    """The last of those."""


class SparingHandler(logging.StreamHandler[TextIO]):
    """See the module. Lines below WARNING tell what happened and are all written."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._said: dict[_Kind, _Said] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or count it. Called under the handler's lock."""
        now_s = self._clock()
        self._tell_repeated(now_s)
        if record.levelno < logging.WARNING or self._is_new(record, now_s):
            super().emit(record)

    def _is_new(self, record: logging.LogRecord, now_s: float) -> bool:
        text = record.getMessage()
        template = text if record.msg in _NO_TEMPLATES else str(record.msg)
        kind = _Kind(record.name, record.levelno, template)
        said = self._said.get(kind)
        if said is None:
            if len(self._said) >= _KINDS_MAX:
                return True
            said = self._said[kind] = _Said(now_s)
        if text in said.repeated:
            said.repeated[text] += 1
            return False
        if len(said.repeated) >= TEXTS_MAX:
            said.others += 1
            said.newest = text
            return False
        said.repeated[text] = 0
        return True

    def _tell_repeated(self, now_s: float) -> None:
        """Kinds are in the order of their first lines, so the oldest stand in front."""
        while self._said:
            kind, said = next(iter(self._said.items()))
            if now_s - said.since_s < PAUSE_S:
                return
            del self._said[kind]
            for text, count in said.repeated.items():
                if count:
                    times = "once more" if count == 1 else f"{count} times more"
                    self._tell(kind, f"{text} ({times} within {PAUSE_S:.0f} s)")
            if said.others:
                self._tell(
                    kind,
                    f"{said.newest} (the last of {said.others} more lines like it within "
                    f"{PAUSE_S:.0f} s)",
                )

    def _tell(self, kind: _Kind, text: str) -> None:
        super().emit(logging.LogRecord(kind.logger, kind.level, "", 0, text, None, None))


def log_to_standard_error(level: str, whose: str = "") -> None:
    """Have everything from that level on printed; what is said again and again, now and then.

    `whose` stands in each line, if several processes write to one place.
    """
    logging.basicConfig(
        level=level.upper(),
        handlers=[SparingHandler(sys.stderr)],
        format=f"%(asctime)s %(levelname)s {whose}%(message)s",
    )
    if level != "debug":
        # kazoo tells every attempt to connect; what matters of it the store says itself.
        logging.getLogger(_KAZOO).setLevel(logging.WARNING)
