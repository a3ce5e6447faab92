"""What must be true of a cluster, one sentence per invariant of the replication specification.

The numbers are those of section 5.1 there. This is the table for people; the files beside it do
the checking.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BUG: Final = "BUG"
"""Not an invariant: an exception came out of a node, or it logged a traceback."""

INVARIANTS: Final[Mapping[str, str]] = {
    "I-01": "Log start, high watermark and log end of a replica are in this order.",
    "I-02": "A log is an ordered sequence of whole batches that match their checksums.",
    "I-03": "The table of leader epochs says what the batches of the log say.",
    "I-04": "Every index entry leads to a batch, and a lookup finds what a scan finds.",
    "I-05": "What is remembered of producers is what the log says of them.",
    "I-06": "The last stable offset is never beyond the high watermark or an open transaction.",
    "I-07": "Everything below the recovery point is durable.",
    "I-08": "The files on disk are those of the log, and nothing else grows.",
    "I-09": "A replica leads, or is fetched by exactly one fetcher from its leader.",
    "I-10": "A leader never truncates its log and never lowers its high watermark.",
    "I-11": "One process at most leads a partition in one leader epoch.",
    "I-12": "The leader is in sync, and every replica in sync is assigned to the partition.",
    "I-13": "A leader waits for every replica that the metadata calls in sync.",
    "I-14": "Every member of the in-sync set has all that any leader calls committed.",
    "I-15": "A leader never believes a follower to have more than it has.",
    "I-16": "A replica joins the in-sync set only with everything, under its present registration.",
    "I-17": "Below the minimum of in-sync replicas the high watermark stands still.",
    "I-18": "Epochs never fall, and a deposed controller writes nothing.",
    "I-19": "A leader was in sync or eligible before, or the election is called unclean.",
    "I-20": "Each truncation brings a follower nearer to its leader's log, in few rounds.",
    "I-21": "Two logs that share a batch share everything before it.",
    "I-22": "Two logs agree below both high watermarks.",
    "I-23": "A leader has every committed record.",
    "I-24": "No replica in sync truncates what is committed.",
    "I-25": "What is committed never changes.",
    "I-26": "No client is sent what is not committed.",
    "I-27": "The log start of a leader never goes back, and deleted records stay deleted.",
    "I-28": "Every acknowledged record can be read at its offset.",
    "I-29": "No offset ever shows two values.",
    "I-30": "An idempotent producer's records are there once and in order.",
    "I-31": "Eligible leaders are not in sync, and there are none while enough replicas are.",
    "I-32": "Every eligible leader has everything that is committed.",
    "I-33": "Who restarted uncleanly is neither in sync nor eligible before it has caught up.",
    "I-34": "Nothing of an aborted transaction, and nothing refused, is ever read.",
    "I-35": "A consumer sees every record, in order.",
    "I-36": "Of a transaction all is visible or nothing; of a key what was committed last.",
    "I-37": "After a newer epoch of a producer nothing of an older one is appended.",
    "I-38": "The end of a partition that a client is told never goes back.",
    "I-39": "A group's committed offsets are the last that were acknowledged.",
    "I-40": "No request waits for what has already happened.",
    "I-41": "What was refused for certain is in no log.",
    "I-42": "A fetch session tells every change of its partitions.",
    "I-43": "Retention drops the oldest segments only, replicated ones only, and keeps the rest.",
    "I-44": "Compaction keeps the newest value of every key.",
    "I-45": "Recovering twice gives what recovering once gives.",
    "I-46": "A crash leaves a prefix of the log, and all that was durable.",
    "I-47": "No batch that does not match its checksum is sent, appended or kept.",
    "I-48": "In the end there is one controller, and every partition that can be led is led.",
    "I-49": "In the end all replicas are in sync and equal.",
    "I-50": "In the end every request is answered, and every partition can be written and read.",
    "I-51": "In the end everything that was begun is finished.",
    "I-52": "The same seed gives the same run.",
    "I-53": "A follower that stays behind leaves the in-sync set, and one that keeps up joins it.",
    "I-54": "An idempotent producer is not refused with what comes next.",
    "I-55": "A consumer is told where a leader epoch ends.",
    "I-56": "A look-up by time finds the first record of that time.",
    "I-57": "What a log holds can be read, is of no transaction, and has the times it says.",
    "I-58": "A client without permissions sees nothing and changes nothing.",
    "I-59": "A share group gets every record, for one member at a time, until it is done.",
    "I-60": "A delegation token lets in until it has ended, and not after.",
    BUG: "No part of a broker fails in a way that it does not expect.",
}
