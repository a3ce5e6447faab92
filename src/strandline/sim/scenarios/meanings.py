"""What a line of a scenario means, as a sentence for readers who do not know the verbs.

Pages and terminals show it beside the picture, above what then happened. This file knows words
only: a line that cannot be played may have a sentence as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.sim.scenarios.script import Step

_ACKS: Final = {
    "all": "waits until every in-sync replica has it (acks=all)",
    "1": "is answered as soon as the leader has it (acks=1)",
    "0": "waits for no answer (acks=0)",
}
_FETCHES: Final = {
    "lose-request": " The request is lost on its way.",
    "lose-reply": " The leader learns how far the follower is, but its answer is lost.",
    "hold-reply": " The answer is on its way until 'deliver'.",
    "damage-reply": " The answer is damaged on its way.",
    "park": " If there is nothing to send yet, the leader lets the request wait.",
    "one-batch": " It takes one batch only.",
}
_OF_REPLICAS: Final = {
    "role": "role {}",
    "leo": "log end offset {}",
    "hw": "high watermark {}",
    "start": "log start offset {}",
    "lso": "last stable offset {}",
    "log": "the records {}",
    "epochs": "leader epochs {}",
    "epoch": "leader epoch {}",
    "leso": "the log end {} when its epoch began",
    "sync": "in-sync set {}",
    "proposed": "proposed in-sync set {}",
    "change": "change of the in-sync set: {}",
    "checkpoint": "high watermark {} on disk",
    "leader": "leader {}",
    "eligible": "eligible replicas {}",
    "replicas": "replicas {}",
    "version": "partition epoch {}",
}


def meaning(step: Step) -> str:
    """The sentence for a line; empty for comments, and for verbs that there are not."""
    if step.verb in _WITHOUT_WORDS:
        return _WITHOUT_WORDS[step.verb]
    sentence = _SENTENCES.get(step.verb)
    return "" if sentence is None or not step.words else sentence(step)


def _produce(step: Step) -> str:
    broker, *values = (word for word in step.words if word not in ("transactional", "lose-reply"))
    acks = _ACKS.get(step.options.get("acks", "all"), "")
    client = f"Producer {step.options['producer']}" if "producer" in step.options else "A client"
    inside = " in a transaction" if step.has("transactional") else ""
    lost = " The answer is lost." if step.has("lose-reply") else ""
    return f"{client} sends {', '.join(values)} to {broker}{inside}, and {acks}.{lost}"


def _fetch(step: Step) -> str:
    flags = "".join(_FETCHES[word] for word in step.words if word in _FETCHES)
    return (
        f"{step.words[0]} asks its leader for what follows its log end; by that the leader knows "
        f"what {step.words[0]} has.{flags}"
    )


def _marker(step: Step) -> str:
    producer = step.options.get("producer", "?")
    kind = "".join(step.words[1:2])
    return (
        f"The coordinator writes the {kind} of producer {producer}'s transaction on {_one(step)}."
    )


def _expect(step: Step) -> str:
    subject, *rest = step.words
    facts = ", ".join(_fact(name, value) for name, value in step.options.items())
    if facts and not rest:
        return f"Expected: {'the controller' if subject == 'controller' else subject} has {facts}."
    return f"Expected: {' '.join(_EXPECTED.get(word, word) for word in step.words)}."


_EXPECTED: Final = {
    "logs-equal": "the same records on",
    "diverged": "different records at the same offset on",
    "lost": "lost, although once committed:",
    "kept": "still there:",
    "acked": "acknowledged:",
    "waiting": "not answered yet:",
    "failed": "refused:",
    "low-watermark": "the low watermark of",
}


def _fact(name: str, value: str) -> str:
    if name.startswith("rem."):
        known = "nothing known" if value == "-1" else f"knowledge that the log end is {value}"
        return f"{known} of {name.removeprefix('rem.')}"
    return _OF_REPLICAS.get(name, f"{name} {{}}").format(value or "none")


def _one(step: Step) -> str:
    return step.words[0]


def _elect(step: Step) -> str:
    unclean = ", though it may lack committed records" if step.has("unclean") else ""
    members = step.options.get("isr", "")
    in_sync = f", with {', '.join(members)} in sync" if members else ""
    return f"{_one(step)} becomes the leader in a new epoch{in_sync}{unclean}."


def _heal(step: Step) -> str:
    silent = " It does not hear of the cluster's state yet." if step.has("silent") else ""
    return f"{_one(step)} is connected again.{silent}"


def _alter(step: Step) -> str:
    held = " The answer is on its way until 'reply'." if step.has("hold-reply") else ""
    return f"The controller answers the change of the in-sync set that {_one(step)} proposes.{held}"


def _power_cut(step: Step) -> str:
    kept = f", and has records below {step.options['keep']} only" if "keep" in step.options else ""
    return f"The machine of {_one(step)} loses power and what was not synced to disk{kept}."


def _of_one(sentence: str) -> Callable[[Step], str]:
    return lambda step: sentence.format(_one(step), " ".join(step.words))


_WITHOUT_WORDS: Final = {
    "controller": "The controller looks at who is registered, and decides who leads.",
    "tick": "Half a second passes: followers fetch, leaders propose, the controller decides.",
}


def _consume(step: Step) -> str:
    only = ", and skips what is not committed yet or aborted" if step.has("committed") else ""
    return (
        f"A consumer reads from {_one(step)}, from offset {step.options.get('from', '0')} on{only}."
    )


_SENTENCES: Final[dict[str, Callable[[Step], str]]] = {
    "produce": _produce,
    "marker": _marker,
    "fetch": _fetch,
    "expect": _expect,
    "elect": _elect,
    "heal": _heal,
    "alter": _alter,
    "power-cut": _power_cut,
    "consume": _consume,
    "pause": _of_one("The process of {0} stands still: it keeps its connections and says nothing."),
    "resume": _of_one("The process of {0} goes on."),
    "deliver": _of_one("The answer that was held back reaches {0}."),
    "expire-fetch": _of_one("The fetch of {0} has waited long enough, and is answered."),
    "start": _of_one("The process of {0} starts on its disk, and registers."),
    "kill": _of_one("The process of {0} ends without warning; what it wrote is still there."),
    "stop": _of_one("{0} shuts down cleanly."),
    "wipe": _of_one("The disk of {0} is replaced by an empty one."),
    "announce-shutdown": _of_one("{0} says that it is going to shut down."),
    "cut": _of_one(
        "{0} is cut off from the other brokers and from the metadata; clients reach it."
    ),
    "tell": _of_one("{0} hears of the cluster's state."),
    "expire": _of_one("The session of {0} ends although it runs."),
    "prefer": _of_one("Leadership moves to {0}, which is in sync."),
    "reply": _of_one("The controller's answer that was held back reaches {0}."),
    "assign": _of_one("The partition is now assigned to {1}."),
    "min-in-sync": _of_one("min.insync.replicas becomes {0}."),
    "wait": _of_one("Time passes: {0}."),
    "delete-records": lambda step: (
        f"A client deletes the records below {''.join(step.words[1:2])} on {_one(step)}."
    ),
}
