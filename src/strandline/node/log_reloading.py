"""Loading a log again within one life of the process, after an operation on it has broken off.

For want of room, handles or memory an operation may leave files and memory that differ. Nothing is
wrong with the disk then: the log is loaded as a start after a crash does, and its replica goes on
under the same registration. This file knows what that takes; when it is time is decided elsewhere.
"""

from __future__ import annotations

import logging
from random import Random

from strandline.config.topic import TopicConfig
from strandline.errors import StorageError
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.log_to_load import LogToLoad
from strandline.types import NO_OFFSET

log = logging.getLogger(__name__)


def reload_log(
    directory: LogDirectory[Log],
    failed: Log,
    config: TopicConfig,
    *,
    now_ms: int,
    random: Random,
    producer_expiration_ms: int,
) -> Log:
    """The log that takes the place of the failed one in its directory. Raises `NoRoom`, when it may
    be tried again, and `StorageError`: then the disk is not to be used any more."""
    failed.close()
    found = LogToLoad(
        failed.topic_partition,
        failed.directory,
        recovery_point=failed.recovery_point,
        log_start_offset=failed.log_start_offset,
        high_watermark=failed.high_watermark,
        needs_recovery=True,
        cleaned_to=directory.cleaner_offsets.get(failed.topic_partition, NO_OFFSET),
    )
    loaded = Log.load(
        failed.files,
        found,
        config,
        now_ms=now_ms,
        random=random,
        producer_expiration_ms=producer_expiration_ms,
    )
    if loaded.recovery_report.has_lost_records:
        # Rot, which its replica must not outlive as a complete one: nothing that breaks off cuts
        # into what was appended.
        loaded.close()
        cut = next(each for each in loaded.recovery_report.cuts if not each.was_deleted)
        raise StorageError(f"{failed.topic_partition} was loaded again, and lost records: {cut}")
    directory.add(loaded)
    try:
        # The tables may promise more than the log has now; see `LogDirectory.load_logs`.
        directory.write_recovery_points()
        directory.write_high_watermarks()
        # Where it starts counts as saved from now on, also what a full disk did not take before.
        directory.write_log_starts()
        directory.settle_cleaner_offset(loaded)
    except StorageError:
        directory.add(failed)
        loaded.close()
        raise
    for line in loaded.recovery_report.lines():
        log.info("%s was loaded again: %s", loaded.topic_partition, line)
    return loaded
