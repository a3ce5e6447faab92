"""Plans of the simulator as text, and back: exactly, so that a run can be written down.

    title: seed 42
    world: cluster
    seed: 42
    profile: beyond
    brokers: 3
    settings: replica.lag.time.max.ms=1000       may be given several times
    latency: least=100us mean=500us spike=80ms spikes=5
    without: leader-epoch-cache                  the safety rule that is switched off
    violates: I-14                               what is then broken; else nothing may be

    topic t partitions=2 replication=3 segment.bytes=4096
    client producer p1 topic=t acks=all every=20ms
    at 1200ms kill leader:t-0 down=3s
    at 9s expect t-0 leader=2
    expect t-0@1 role=follower                   without a time: at the very end

What is at its default is left out. The grammar is that of all scenarios (`scenarios.script`); this
file knows the header's names and the three kinds of lines. What clients and actions mean is known
to `clients` and `faults`, what can be expected to `expectations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from strandline.sim.knobs import check_knob
from strandline.sim.plan import (
    BEYOND,
    DAMAGE,
    SAFE,
    STRICT,
    Action,
    ClientSpec,
    LatencySpec,
    Options,
    Plan,
    TopicSpec,
    safe_profile,
)
from strandline.sim.scenarios.script import (
    CLUSTER,
    BadScript,
    Entry,
    Script,
    Step,
    format_us,
    parse_int,
    parse_script,
    parse_us,
)

EXPECT: Final = "expect"
_LINE_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class PlanScript:
    """A plan and what its text says about it."""

    name: str
    plan: Plan
    title: str = ""
    without: str | None = None
    violates: frozenset[str] = frozenset()
    lines: tuple[int, ...] = ()
    """Where each of the plan's actions stands."""
    at_the_end: tuple[Step, ...] = ()
    """Expectations without a time."""


def format_plan(
    plan: Plan,
    *,
    title: str = "",
    without: str | None = None,
    violates: Iterable[str] = (),
) -> str:
    """The text of a plan; `parse_plan` makes the same plan of it."""
    lines = [f"title: {title or f'seed {plan.options.seed}'}", f"world: {CLUSTER}"]
    lines.extend(_header_lines(plan.options))
    if without is not None:
        lines.append(f"without: {without}")
    if broken := sorted(violates):
        lines.append(f"violates: {' '.join(broken)}")
    blocks = [
        [_topic_line(topic) for topic in plan.options.topics],
        [str(client) for client in plan.clients],
        [str(action) for action in plan.actions],
    ]
    return "\n\n".join("\n".join(block) for block in (lines, *blocks) if block) + "\n"


def parse_plan(text: str, name: str = "plan") -> Plan:
    """The plan of a text. Raises `BadScript` with the number of the line."""
    return read_plan(parse_script(name, text)).plan


def read_plan(script: Script) -> PlanScript:
    """The plan of a script. Raises `BadScript` with the number of the line."""
    options = _read_header(script)
    topics: list[TopicSpec] = []
    clients: list[ClientSpec] = []
    actions: list[tuple[Action, int]] = []
    ends: list[Step] = []
    for step in script.steps:
        if not step.verb:
            continue
        with_line = _Line(script, step.line)
        if step.when:
            raise BadScript(f"{script.where(step.line)}: A cluster has no policy to ask for.")
        if step.verb == "topic":
            topics.append(with_line(_read_topic, step))
        elif step.verb == "client":
            clients.append(with_line(_read_client, step))
        elif step.verb == "at":
            actions.append((with_line(_read_action, step), step.line))
        elif step.verb == EXPECT:
            ends.append(step)
        else:
            raise BadScript(
                f"{script.where(step.line)}: A line begins with topic, client, at or expect, "
                f"not with '{step.verb}'."
            )
    actions.sort(key=lambda item: item[0].at_us)
    options = replace(options, topics=tuple(topics))
    plan = _with_profile(Plan(options, tuple(clients), tuple(action for action, _ in actions)))
    return PlanScript(
        script.name,
        plan,
        script.title,
        script.header.get("without"),
        script.violates,
        tuple(line for _, line in actions),
        tuple(ends),
    )


class _Line:
    """Calls what reads a line; its errors get the line's number."""

    def __init__(self, script: Script, line: int) -> None:
        self._where = script.where(line)

    def __call__(self, reader: Callable[..., Any], *arguments: object) -> Any:
        try:
            return reader(*arguments)
        except BadScript as error:
            raise BadScript(f"{self._where}: {error}") from error


# -- The lines below the header --------------------------------------------------------------


def _topic_line(topic: TopicSpec) -> str:
    words = ["topic", topic.name]
    words.append(f"partitions={topic.partitions}")
    words.append(f"replication={topic.replication}")
    words.extend(f"{name}={value}" for name, value in topic.configs.items())
    return " ".join(words)


def _read_topic(step: Step) -> TopicSpec:
    if len(step.words) != 1:
        raise BadScript("A topic has one name.")
    partitions = step.option_int("partitions", 1)
    replication = step.option_int("replication", 3)
    if partitions < 1 or replication < 1:
        raise BadScript("A topic has at least one partition and one replica.")
    configs = {n: v for n, v in step.options.items() if n not in ("partitions", "replication")}
    return TopicSpec(step.words[0], partitions, replication, configs)


def _read_client(step: Step) -> ClientSpec:
    if len(step.words) != 2:
        raise BadScript("A client has a kind and a name: client producer p1 topic=t.")
    return ClientSpec(step.words[0], step.words[1], dict(step.options))


def _read_action(step: Step) -> Action:
    if len(step.words) < 2:
        raise BadScript("'at' is followed by a time and a verb: at 1200ms kill 2 down=3s.")
    moment, verb, *words = step.words
    return Action(parse_us(moment), verb, tuple(words), dict(step.options))


# -- The header ------------------------------------------------------------------------------


def _header_lines(options: Options) -> Iterator[str]:
    calm = Options(seed=options.seed)
    for name, write in _WRITERS.items():
        if name == "seed" or write(options) != write(calm):
            value = write(options)
            if isinstance(value, str):
                yield f"{name}: {value}"
            else:
                yield from _wrapped(f"{name}:", value)


def _wrapped(head: str, words: list[str]) -> Iterator[str]:
    line = head
    for word in words:
        if line != head and len(line) + 1 + len(word) > _LINE_MAX:
            yield line
            line = head
        line += f" {word}"
    if line != head:
        yield line


def _latency_text(latency: LatencySpec) -> str:
    return (
        f"least={format_us(latency.least_us)} mean={format_us(latency.mean_us)} "
        f"spike={format_us(latency.spike_us)} spikes={latency.spikes_per_mille}"
    )


def _numbers_text(numbers: Iterable[object]) -> str:
    return " ".join(map(str, numbers))


_MAY_CRASH: Final = "may-crash"

_WRITERS: Final[Mapping[str, Callable[[Options], str | list[str]]]] = {
    "seed": lambda o: str(o.seed),
    "profile": lambda o: o.profile,
    "brokers": lambda o: str(o.brokers),
    "racks": lambda o: _numbers_text(o.racks),
    "disks": lambda o: str(o.disks),
    "settings": lambda o: [f"{name}={value}" for name, value in o.settings.items()],
    "minimums": lambda o: _numbers_text(o.minimums),
    "knobs": lambda o: [f"{name}={value}" for name, value in o.knobs.items()],
    "candidates": lambda o: "" if o.spares_candidates else _MAY_CRASH,
    "latency": lambda o: _latency_text(o.latency),
    "store": lambda o: f"latency={format_us(o.store_latency_us)} lag={format_us(o.store_lag_us)}",
    "drifts": lambda o: _numbers_text(o.drifts_ppm),
    "wall-offsets": lambda o: _numbers_text(o.wall_offsets_ms),
    "phases": lambda o: f"safety={format_us(o.safety_us)} liveness={format_us(o.liveness_us)}",
}


def _read_header(script: Script) -> Options:
    options = Options(seed=0)
    if "seed" not in script.header:
        raise BadScript(f"{script.name} has no seed.")
    for entry in script.entries:
        options = _Line(script, entry.line)(_read_entry, options, entry)
    return options


def _read_entry(options: Options, entry: Entry) -> Options:
    if entry.name in ("title", "group", "alias", "world", "without", "violates") and not entry.when:
        return options
    if entry.name not in _READERS or entry.when:
        raise BadScript(f"The header of a cluster has no '{entry.name}'.")
    if not entry.value:
        raise BadScript(f"'{entry.name}' has no value.")
    return _READERS[entry.name](options, entry.value)


def _read_profile(options: Options, value: str) -> Options:
    if value not in (STRICT, DAMAGE, BEYOND, SAFE):
        raise BadScript(f"The profile is {STRICT}, {DAMAGE} or {BEYOND}, not '{value}'.")
    return replace(options, profile=value)


def _read_candidates(options: Options, value: str) -> Options:
    if value != _MAY_CRASH:
        raise BadScript(f"'candidates' is {_MAY_CRASH}, or is not there; not '{value}'.")
    return replace(options, spares_candidates=False)


def _with_profile(plan: Plan) -> Plan:
    """A plan without a profile, or `safe`, has that of its actions."""
    if plan.options.profile in (DAMAGE, BEYOND):
        return plan
    return replace(plan, options=replace(plan.options, profile=safe_profile(plan.actions)))


def _read_settings(options: Options, value: str) -> Options:
    settings = dict(options.settings)
    for word in value.split():
        name, equals, setting = word.partition("=")
        if not equals or not name:
            raise BadScript(f"'{word}' is not a setting such as min.insync.replicas=2.")
        settings[name] = setting
    return replace(options, settings=settings)


def _read_knobs(options: Options, value: str) -> Options:
    knobs = dict(options.knobs)
    for word in value.split():
        name, _, number = word.partition("=")
        check_knob(name)
        knobs[name] = _at_least_one(number)
    return replace(options, knobs=knobs)


def _read_latency(options: Options, value: str) -> Options:
    given = _pairs(value, ("least", "mean", "spike", "spikes"))
    before = options.latency
    latency = LatencySpec(
        least_us=_time(given, "least", before.least_us),
        mean_us=_time(given, "mean", before.mean_us),
        spike_us=_time(given, "spike", before.spike_us),
        spikes_per_mille=parse_int(given.get("spikes", str(before.spikes_per_mille))),
    )
    return replace(options, latency=latency)


def _read_store(options: Options, value: str) -> Options:
    given = _pairs(value, ("latency", "lag"))
    return replace(
        options,
        store_latency_us=_time(given, "latency", options.store_latency_us),
        store_lag_us=_time(given, "lag", options.store_lag_us),
    )


def _read_phases(options: Options, value: str) -> Options:
    given = _pairs(value, ("safety", "liveness"))
    return replace(
        options,
        safety_us=_time(given, "safety", options.safety_us),
        liveness_us=_time(given, "liveness", options.liveness_us),
    )


def _pairs(value: str, names: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in value.split():
        name, equals, given = word.partition("=")
        if not equals or name not in names:
            raise BadScript(f"'{word}' is none of {', '.join(f'{each}=' for each in names)}.")
        found[name] = given
    return found


def _time(given: Mapping[str, str], name: str, default_us: int) -> int:
    return parse_us(given[name]) if name in given else default_us


def _at_least_one(value: str) -> int:
    number = parse_int(value)
    if number < 1:
        raise BadScript(f"'{value}' is less than 1.")
    return number


def _numbers(value: str) -> tuple[int, ...]:
    return tuple(parse_int(word) for word in value.split())


_READERS: Final[Mapping[str, Callable[[Options, str], Options]]] = {
    "seed": lambda o, value: replace(o, seed=parse_int(value)),
    "profile": _read_profile,
    "brokers": lambda o, value: replace(o, brokers=_at_least_one(value)),
    "racks": lambda o, value: replace(o, racks=tuple(value.split())),
    "disks": lambda o, value: replace(o, disks=_at_least_one(value)),
    "settings": _read_settings,
    "minimums": lambda o, value: replace(o, minimums=_numbers(value)),
    "knobs": _read_knobs,
    "candidates": _read_candidates,
    "latency": _read_latency,
    "store": _read_store,
    "drifts": lambda o, value: replace(o, drifts_ppm=_numbers(value)),
    "wall-offsets": lambda o, value: replace(o, wall_offsets_ms=_numbers(value)),
    "phases": _read_phases,
}
