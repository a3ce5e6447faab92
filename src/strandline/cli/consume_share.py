"""`strandline consume --share-group`: printing as a member of a share group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

import click

from strandline.cli.connecting import open_cluster
from strandline.cli.consume_run import Troubles
from strandline.cli.record_format import Formatter
from strandline.cli.stopping import Stop, ends_with_its_reader
from strandline.client.api.settings import SHARE_NAMES, share_settings_of
from strandline.client.settings import ClientSettings
from strandline.client.share_group.acknowledgements import ShareRecord
from strandline.client.share_group.settings import ACQUIRE_MODES, EXPLICIT, ShareSettings
from strandline.client.share_thread import ShareThread
from strandline.errors import InvalidSetting
from strandline.protocol.acknowledge_type import AckType
from strandline.records.record import Record
from strandline.types import Offset, TopicPartition

_POLL_MS: Final = 250
_CLOSE_MS: Final = 10_000
_FIXED: Final = ("group.id", "share.acknowledgement.mode")
"""What is not set by -X here."""


@dataclass(frozen=True, slots=True)
class ShareTask:
    """What is to be printed, as a member of which group."""

    topic: str
    group: str
    settings: Mapping[str, str]
    count_max: int | None

    def checked(self, refused: Mapping[str, bool]) -> ShareTask:
        """The task, unless it is given with one of these options. Raises `click.UsageError`."""
        wrong = next((option for option, is_given in refused.items() if is_given), None)
        if wrong is not None:
            raise click.UsageError(
                f"{wrong} cannot be given with --share-group: the group knows which records are "
                "next. Its settings say where it begins (share.auto.offset.reset) and which "
                "transactions it sees (share.isolation.level)."
            )
        known = [name for name in SHARE_NAMES if name not in _FIXED]
        unknown = next((name for name in self.settings if name not in known), None)
        if unknown is not None:
            raise click.UsageError(
                f"There is no setting '{unknown}' here; there are {', '.join(sorted(known))}."
            )
        self.member(ClientSettings())
        return self

    def member(self, client: ClientSettings) -> ShareSettings:
        """As what to join. Not more is acquired than is to be printed."""
        try:
            found = share_settings_of({**self.settings, "group.id": self.group}, client)
        except InvalidSetting as wrong:
            raise click.UsageError(str(wrong)) from wrong
        found = replace(found, mode=EXPLICIT)
        if self.count_max is None:
            return found
        return replace(
            found,
            max_poll_records=min(self.count_max, found.max_poll_records),
            acquire_mode=ACQUIRE_MODES["record_limit"],
        )


def consume_from_share_group(
    task: ShareTask, bootstrap: str | None, formatter: Formatter, output: BinaryIO
) -> None:
    """Print until it is stopped, or enough was printed. What was not written out when it ends goes
    back to the group."""
    left = task.count_max
    troubles = Troubles()
    ends_when = "what was printed is accepted and the group is left"
    with (
        ends_with_its_reader(),
        open_cluster(bootstrap) as client,
        Stop(terminate=True, ends_when=ends_when) as stop,
    ):
        client.topic(task.topic)  # a typing mistake is no topic that may come
        timeout_ms = client.settings.operation_timeout_ms
        member = ShareThread(client, task.member(client.settings))
        try:
            member.subscribe([task.topic])
            while not stop.is_set and (left is None or left > 0):
                given = member.poll(_POLL_MS)
                printed = given[:left]
                for each in printed:
                    output.write(formatter(*_plain(each)))
                output.flush()
                _accept(member, printed, given[len(printed) :], timeout_ms)
                left = None if left is None else left - len(printed)
                troubles.tell(member.trouble)
        finally:
            if not stop.is_abandoned:  # else the group finds out by the member's silence
                member.close(_CLOSE_MS)


def _plain(record: ShareRecord) -> tuple[TopicPartition, Record]:
    at = TopicPartition(record.topic, record.partition)
    return at, Record(
        Offset(record.offset), record.timestamp_ms, record.key, record.value, record.headers
    )


def _accept(
    member: ShareThread,
    printed: Sequence[ShareRecord],
    others: Sequence[ShareRecord],
    timeout_ms: int,
) -> None:
    """Only now: what a closed pipe did not take must come again."""
    for kind, records in ((AckType.ACCEPT, printed), (AckType.RELEASE, others)):
        for each in records:
            member.acknowledge(TopicPartition(each.topic, each.partition), each.offset, kind)
    for error in member.commit(timeout_ms).values() if printed else ():
        if error is not None:
            click.echo(f"{error.message} These records may be printed again.", err=True)
