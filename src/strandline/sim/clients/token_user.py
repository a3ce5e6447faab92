"""A client that makes delegation tokens, logs in by them, and ends them (I-60).

`client tokens tokens1 every=150ms life=3s`

Some tokens live for `life`, others for days. It asks any broker, as its owner, to make, renew,
shorten or remove them, and logs in by them. What may not be:

- a token lets it in at a broker by whose clock its longest life is over;
- a removed one lets it in at the broker that has confirmed the removal, or in the end at any;
- one that was confirmed, and cannot have ended, does not let it in at that broker, or in the end at
  any, whatever became of controllers meanwhile.

Other brokers may hear of tokens late, as in Kafka. Where faults set clocks nothing is said of
tokens that are refused: the controller removes what its own clock says is over.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from strandline.client.security.authentication import Authentication
from strandline.client.security.mechanisms import Exchange, Plain, Scram
from strandline.client.security.settings import Sasl
from strandline.client.versions import ServedVersions
from strandline.errors import AuthenticationFailed, ErrorCode, MalformedFrame
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import parse_response_header, request_frame
from strandline.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from strandline.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from strandline.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from strandline.protocol.schema import decode_response
from strandline.protocol.versions import VersionRange
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.tries import Try, TryingClient
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.sim.tokens import OWNERS_WORD, TOKENS
from strandline.types import BrokerId

_DAYS_MS: Final = 24 * 3_600_000
_MARGIN_MS: Final = 60_000
"""Beyond this much before its end a token is not over by the clock of any broker."""
_SHORTENED_MS: Final = 500
_KEPT_MAX: Final = 8
_LAST_EVERY_US: Final = 300_000
_LAST_FOR_US: Final = 40_000_000
_NONCE_BITS: Final = 128
_SERVED: Final = {
    int(ApiKey.SASL_HANDSHAKE): VersionRange(1, 1),
    int(ApiKey.SASL_AUTHENTICATE): VersionRange(1, 2),
}
_VERSIONS: Final = {
    ApiKey.CREATE_DELEGATION_TOKEN: 3,
    ApiKey.RENEW_DELEGATION_TOKEN: 2,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
}


@dataclass(slots=True, eq=False)
class Token:
    """One that was confirmed by the broker `made_by`, and what can have become of it."""

    token_id: str
    secret: bytes
    made_by: BrokerId
    least_ms: int
    """Before that time it has not expired."""
    most_ms: int
    """From that time on it has."""
    is_ending: bool = False
    """Whether it was asked to be removed."""
    removed_by: set[BrokerId] = field(default_factory=set)
    """Brokers that have confirmed it."""


class _Visit(Try):
    """One connection: a login, and perhaps one request after it."""

    def __init__(
        self,
        owner: TokenUser,
        what: str,
        target: BrokerId,
        login: tuple[str, Exchange],
        request: tuple[ApiKey, object] | None = None,
    ) -> None:
        super().__init__(owner, what, b"")
        broker = f"broker {target}"
        self.target = target
        self.answered: Callable[[Any], None] = lambda _: None
        """Hears the answer to the request."""
        self.logged_in: Callable[[bool], None] = lambda _: None
        """Hears whether it was let in, if the broker says so."""
        self._user = owner
        mechanism, exchange = login
        self._login = Authentication(broker, mechanism, exchange, ServedVersions(broker, _SERVED))
        self._request = request
        self._asked: tuple[ApiKey, int] | None = None

    def opened(self) -> None:
        """See `Peer`."""
        step = self._login.next
        if step is not None:
            self._send(step.key, step.version, step.request)
        elif self._request is not None:
            key, message = self._request
            self._send(key, _VERSIONS[key], message)

    def _is_in(self) -> bool:
        return self._login.next is None

    def _send(self, key: ApiKey, version: int, message: object) -> None:
        if self.wire is not None:
            self._asked = key, version
            chunks = request_frame(KNOWN[key], version, 1, TOKENS, message)
            self.wire.send(b"".join(chunks))  # type: ignore[arg-type]  # no ranges of files

    def received(self, frame: bytes) -> None:
        """See `Peer`."""
        wire, asked = self.wire, self._asked
        if self.is_over or wire is None or asked is None:
            return
        if wire.is_damaged:
            self.end("disturbed")
            return
        key, version = asked
        try:
            _, position = parse_response_header(memoryview(frame), KNOWN[key], version)
            answer = decode_response(key, version, frame, position)
        except MalformedFrame as error:
            self._user.found("I-47", f"{self._user.name} got a malformed answer: {error}")
            self.end("disturbed")
            return
        self._take(answer)

    def _take(self, answer: Any) -> None:
        if self._is_in():
            self.answered(answer)
            self.end("answered")
            return
        try:
            self._login.answered(answer)
        except AuthenticationFailed:
            self.logged_in(False)
            self.end("refused")
            return
        if not self._is_in():
            self.opened()
            return
        self.logged_in(True)
        if self._request is None:
            self.end("let in")
        else:
            self.opened()


class TokenUser(TryingClient):
    """See the module."""

    kind: ClassVar[str] = TOKENS

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options, every="150ms")
        self._life_ms = options.time_us("life", "3s") // 1000
        self.tokens: list[Token] = []
        """The newest that it knows of."""
        self._left: list[tuple[Token, BrokerId]] = []
        """What is to be as it should, in the end."""

    # -- Now and then ------------------------------------------------------------------------

    def act(self) -> None:
        """See `TryingClient`."""
        if self.is_finishing:
            return
        target = self._any_broker()
        what = self.random.choice(("make", "use", "use", "use", "use", "renew", "shorten", "end"))
        if not self.tokens or what == "make":
            self._make(target)
            return
        token = self.random.choice(self.tokens)
        if what == "use":
            self._use(token, self.random.choice((token.made_by, *token.removed_by, target)))
        elif what == "renew":
            request = RenewDelegationTokenRequest(hmac=token.secret, renew_period_ms=_DAYS_MS)
            self._ask("renew a token", target, (ApiKey.RENEW_DELEGATION_TOKEN, request))
        elif what == "shorten":
            if not self._is_lasting(token):
                token.least_ms = 0
                self._expire("shorten a token", token, target, _SHORTENED_MS)
        elif not self._is_lasting(token) or self.random.randrange(3) == 0:
            token.is_ending = True
            removed = self._expire("remove a token", token, target, -1)
            removed.answered = lambda answer: self._removed(token, target, answer)

    def _any_broker(self) -> BrokerId:
        return BrokerId(self.random.randrange(self.world.options.brokers) + 1)

    def _is_lasting(self, token: Token) -> bool:
        return token.most_ms - self.world.wall_ms(token.made_by) > _DAYS_MS // 2

    def _make(self, target: BrokerId) -> None:
        life_ms = self.random.choice((_DAYS_MS, self._life_ms, self._life_ms))
        request = CreateDelegationTokenRequest(max_lifetime_ms=life_ms)
        visit = self._ask("make a token", target, (ApiKey.CREATE_DELEGATION_TOKEN, request))
        visit.answered = lambda answer: self._made(target, answer)

    def _made(self, target: BrokerId, answer: CreateDelegationTokenResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            token = Token(
                answer.token_id,
                answer.hmac,
                target,
                answer.expiry_timestamp_ms,
                answer.max_timestamp_ms,
            )
            self.tokens = [*self.tokens[-_KEPT_MAX + 1 :], token]

    def _expire(self, what: str, token: Token, target: BrokerId, period_ms: int) -> _Visit:
        request = ExpireDelegationTokenRequest(hmac=token.secret, expiry_time_period_ms=period_ms)
        return self._ask(what, target, (ApiKey.EXPIRE_DELEGATION_TOKEN, request))

    def _removed(self, token: Token, target: BrokerId, answer: Any) -> None:
        if answer.error_code == ErrorCode.NONE:
            token.removed_by.add(target)

    def _ask(self, what: str, target: BrokerId, request: tuple[ApiKey, object]) -> _Visit:
        visit = _Visit(self, what, target, ("PLAIN", Plain(TOKENS, OWNERS_WORD)), request)
        self.begin(visit, target)
        return visit

    def _use(self, token: Token, target: BrokerId) -> None:
        is_removed = target in token.removed_by
        is_over = self.world.wall_ms(target) > token.most_ms

        def logged_in(is_in: bool) -> None:
            if not is_in:
                if target == token.made_by and self._must_be_in(token, target):
                    self._refused(token, target)
            elif is_removed:
                self.found("I-60", f"Broker {target} let {token.token_id} in, which it removed.")
            elif is_over and self.world.wall_ms(target) > token.most_ms:
                self.found("I-60", f"Broker {target} let {token.token_id} in after its end.")

        self._log_in(token, target).logged_in = logged_in

    def _log_in(self, token: Token, target: BrokerId) -> _Visit:
        sasl = Sasl(mechanism="SCRAM-SHA-256", username=token.token_id, is_delegation_token=True)
        password = base64.b64encode(token.secret).decode()
        nonce = f"{self.random.getrandbits(_NONCE_BITS):032x}"
        login = ("SCRAM-SHA-256", Scram(sasl, password, nonce))
        visit = _Visit(self, "log in by a token", target, login)
        self.begin(visit, target)
        return visit

    def _must_be_in(self, token: Token, target: BrokerId) -> bool:
        is_alive = self.world.wall_ms(target) + _MARGIN_MS < token.least_ms
        return is_alive and not token.is_ending and not self.world.clocks_set_ms

    def _refused(self, token: Token, target: BrokerId) -> None:
        self.found("I-60", f"Broker {target} refused {token.token_id}, which nothing has ended.")

    # -- In the end --------------------------------------------------------------------------

    def finishing(self) -> None:
        """See `SimClient`: all brokers have heard of everything, soon."""
        for each in list(self._tries):
            each.end("given up")
        brokers = [BrokerId(number + 1) for number in range(self.world.options.brokers)]
        asked = [each for each in self.tokens if each.removed_by or self._stays(each)]
        self._left = [(token, broker) for token in asked for broker in brokers]
        self.after(_LAST_FOR_US, self._in_vain)
        self._look_at_last()

    def _stays(self, token: Token) -> bool:
        return self._must_be_in(token, token.made_by)

    def _look_at_last(self) -> None:
        if not self._left:
            self.done()
            return
        for token, target in self._left:
            visit = self._log_in(token, target)
            visit.logged_in = self._checked(token, target)
        self.after(_LAST_EVERY_US, self._look_at_last)

    def _checked(self, token: Token, target: BrokerId) -> Callable[[bool], None]:
        def logged_in(is_in: bool) -> None:
            # With another clock set in between it may have ended without our doing.
            if is_in != bool(token.removed_by) and (token, target) in self._left:
                self._left.remove((token, target))

        return logged_in

    def _in_vain(self) -> None:
        for token, target in self._left:
            if token.removed_by:
                self.found("I-60", f"Broker {target} still lets {token.token_id} in.")
            elif self._must_be_in(token, target):
                self._refused(token, target)
        self._left = []
        for each in list(self._tries):
            each.end("given up")
        self.done()
