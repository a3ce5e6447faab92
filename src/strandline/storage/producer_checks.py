"""The rules by which a partition accepts or refuses a producer's batch (KIP-98, 360, 890).

This file is pure judgement: an entry and a batch in, an error or nothing out. It changes nothing;
`producer_state` does, once the batch is written. Codes and their order are those of Kafka 4.3
(`ProducerAppendInfo` and `UnifiedLog`), because clients act on them: 47 makes a producer abort and
go on, 45 is fatal or bumps its epoch, 48 is fatal.
"""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.records.batch import BatchHeader
from strandline.storage.end_marker import EndMarker
from strandline.storage.producer_entry import ProducerEntry
from strandline.storage.transaction_verification import Verification
from strandline.types import NO_PRODUCER_EPOCH, ProducerEpoch, ProducerId

EPOCH_MAX: Final = 2**15 - 1


def check_epoch(entry: ProducerEntry | None, header: BatchHeader) -> None:
    """A data batch must not come from an epoch that was fenced."""
    if entry is not None and header.producer_epoch < entry.epoch:
        raise stale_epoch(entry, header.producer_epoch)


def check_sequence(
    entry: ProducerEntry | None, header: BatchHeader, verification: Verification | None
) -> None:
    """A client's batch must follow the one before it without a gap.

    An unknown producer may start anywhere: its state may have expired, or its records may have
    been deleted (KIP-360).
    """
    sequence = header.base_sequence
    if verification is not None:
        _check_verified_sequence(entry, header, verification)
    if entry is None or entry.epoch == NO_PRODUCER_EPOCH:
        return
    if header.producer_epoch != entry.epoch:
        if sequence != 0:
            raise _out_of_order(
                entry.producer_id,
                f"started epoch {header.producer_epoch} with sequence {sequence} instead of 0; "
                f"its last seen epoch is {entry.epoch}",
            )
    elif sequence != entry.next_sequence:
        raise _out_of_order(
            entry.producer_id, f"sent sequence {sequence} where {entry.next_sequence} was due"
        )


def check_transactional(entry: ProducerEntry | None, header: BatchHeader) -> None:
    """While a transaction is open its producer writes nothing outside of it."""
    if entry is not None and entry.has_open_transaction and not header.is_transactional:
        raise ProtocolError(
            ErrorCode.INVALID_TXN_STATE,
            f"Producer {entry.producer_id} wrote outside of its transaction, which is open here "
            f"since offset {entry.transaction_first_offset}.",
        )


def check_marker(
    entry: ProducerEntry | None, header: BatchHeader, marker: EndMarker, transaction_version: int
) -> None:
    """An end marker must come from the current coordinator epoch and for the current transaction.

    With transactions of version 2 the coordinator raises the epoch before it writes the marker,
    so a marker of the known epoch is late, unless it repeats one that already took effect
    (KAFKA-19999). Before version 2 markers carry the epoch of the data.
    """
    if entry is None:
        return
    epoch = header.producer_epoch
    if transaction_version >= 2:
        repeats = epoch == entry.epoch and (not entry.has_open_transaction or epoch == EPOCH_MAX)
        stale = epoch <= entry.epoch and not repeats
    else:
        stale = epoch < entry.epoch
    if stale:
        raise ProtocolError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"The end marker for producer {entry.producer_id} has epoch {epoch}, which is too old: "
            f"its last seen epoch is {entry.epoch} (transaction version {transaction_version}).",
        )
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise ProtocolError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"The end marker for producer {entry.producer_id} comes from coordinator epoch "
            f"{marker.coordinator_epoch}, older than {entry.coordinator_epoch}.",
        )


def stale_epoch(entry: ProducerEntry, epoch: ProducerEpoch) -> ProtocolError:
    """The refusal of an epoch that was fenced."""
    return ProtocolError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Producer {entry.producer_id} wrote with epoch {epoch}, which is older than its last "
        f"seen epoch {entry.epoch}.",
    )


def unverified(header: BatchHeader) -> ProtocolError:
    """The refusal of a transactional batch that the coordinator does not know of."""
    return ProtocolError(
        ErrorCode.INVALID_TXN_STATE,
        f"The batch of producer {header.producer_id} is not part of an ongoing transaction.",
    )


def _check_verified_sequence(
    entry: ProducerEntry | None, header: BatchHeader, verification: Verification
) -> None:
    sequence = header.base_sequence
    is_fresh = entry is None or not entry.batches
    if verification.supports_epoch_bump and sequence != 0 and is_fresh:
        raise _out_of_order(
            header.producer_id, f"has no state here and sent sequence {sequence} instead of 0"
        )
    if sequence > verification.lowest_sequence:
        raise _out_of_order(
            header.producer_id,
            f"sent sequence {sequence} while the earlier {verification.lowest_sequence} waits",
        )


def _out_of_order(producer_id: ProducerId, fault: str) -> ProtocolError:
    return ProtocolError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"Producer {producer_id} {fault}.")
