"""Rules about transactions: what their coordinator refuses, and offsets that are part of one."""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode
from strandline.node.why.writing_rules import refusal_rule

RULES: Final = (
    refusal_rule(
        "transaction-ending",
        "A producer begins a transaction while its last one is being ended",
        (ErrorCode.CONCURRENT_TRANSACTIONS,),
        "The coordinator is writing the markers of the producer's last transaction to all of its "
        "partitions, and takes nothing for the next one before they are there.",
        "Nothing: the client asks again. If it lasts, a partition of the last transaction has no "
        "leader; `strandline transactions describe ID` names them.",
    ),
    refusal_rule(
        "offsets-undecided",
        "Offsets of a group are part of a transaction that is not decided",
        (ErrorCode.UNSTABLE_OFFSET_COMMIT,),
        "A producer has sent offsets of the group in a transaction that it has neither committed "
        "nor aborted. A consumer that asks for stable offsets waits for that.",
        "Nothing: the client asks again. It ends with the transaction, at the latest after "
        "transaction.timeout.ms of the producer.",
        ("transaction.max.timeout.ms",),
    ),
    refusal_rule(
        "transaction-refused",
        "A request does not fit the state of a transaction",
        (
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ),
        "The coordinator does not know the transactional id with this producer id, its transaction "
        "is in another state, or transaction.timeout.ms of the producer is above what the brokers "
        "allow. Ids that are not used are forgotten after transactional.id.expiration.ms.",
        "Abort the transaction, or close the producer and begin with a new one.",
        ("transaction.max.timeout.ms", "transactional.id.expiration.ms"),
    ),
)
