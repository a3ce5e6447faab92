"""`strandline tokens`: delegation tokens, which log in for a user for some time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final, TypeVar

import click

from strandline.cli.connecting import bootstrap_option, json_option, open_cluster
from strandline.cli.moments import parse_duration
from strandline.cli.output import print_json, print_table, time_text
from strandline.cli.whole_sentences import SentencesGroup
from strandline.client.admin_tokens import AS_THE_BROKER_SAYS, DelegationToken, TokenAdmin
from strandline.client.security.secret import Secret

_AT_ONCE: Final = -1
_Result = TypeVar("_Result")


@click.group(cls=SentencesGroup)
def tokens() -> None:
    """Make, show and end delegation tokens (KIP-48).

    A client logs in by a token with SCRAM: its id is the name, its secret the password, and
    sasl.tokenauth=true says so. The brokers need delegation.token.secret.key, and who asks about
    tokens has logged in by something else. SECRET below is the secret itself, env:NAME or
    file:PATH.
    """


@tokens.command()
@click.option("--owner", metavar="TYPE:NAME", help="Whose token, such as User:alice; else yours.")
@click.option(
    "--renewer", metavar="TYPE:NAME", multiple=True, help="Who may renew it, too. Repeatable."
)
@click.option(
    "--max-lifetime",
    metavar="ISO-DURATION",
    help="Its longest life, such as P1D; else the broker's.",
)
@bootstrap_option
@json_option
def create(
    owner: str | None,
    renewer: tuple[str, ...],
    max_lifetime: str | None,
    bootstrap: str | None,
    as_json: bool,
) -> None:
    """Make a token and print it; only this and --secrets of list show its secret."""
    life_ms = _milliseconds(max_lifetime, "--max-lifetime", AS_THE_BROKER_SAYS)
    made = _ask(bootstrap, lambda admin: admin.create(owner, renewer, life_ms))
    if as_json:
        print_json(_document(made))
        return
    click.echo(f"id       {made.token_id}")
    click.echo(f"secret   {made.secret}")
    click.echo(f"owner    {made.owner}")
    click.echo(f"expires  {time_text(made.expires_ms)}")
    click.echo(f"until    {time_text(made.lives_until_ms)}, if it is renewed")


@tokens.command()
@click.argument("secret")
@click.option("--for", "period", metavar="ISO-DURATION", help="From now; else the broker's time.")
@bootstrap_option
def renew(secret: str, period: str | None, bootstrap: str | None) -> None:
    """Have the token with that SECRET expire later."""
    period_ms = _milliseconds(period, "--for", AS_THE_BROKER_SAYS)
    expires_ms = _ask(bootstrap, lambda admin: admin.renew(_revealed(secret), period_ms))
    click.echo(f"The token expires at {time_text(expires_ms)}.")


@tokens.command()
@click.argument("secret")
@click.option("--in", "period", metavar="ISO-DURATION", help="From now; at once if left out.")
@bootstrap_option
def expire(secret: str, period: str | None, bootstrap: str | None) -> None:
    """Have the token with that SECRET expire earlier, or at once."""
    period_ms = _milliseconds(period, "--in", _AT_ONCE)
    expires_ms = _ask(bootstrap, lambda admin: admin.expire(_revealed(secret), period_ms))
    if period is None:
        click.echo("The token is gone.")
    else:
        click.echo(f"The token expires at {time_text(expires_ms)}.")


@tokens.command(name="list")
@click.option(
    "--owner", metavar="TYPE:NAME", multiple=True, help="Only those of this owner or renewer."
)
@click.option("--secrets", is_flag=True, help="Show the secrets as well.")
@bootstrap_option
@json_option
def list_tokens(
    owner: tuple[str, ...], secrets: bool, bootstrap: str | None, as_json: bool
) -> None:
    """List the tokens that you may see."""
    found = _ask(bootstrap, lambda admin: admin.describe(owner or None))
    if as_json:
        print_json([_document(each, has_secret=secrets) for each in found])
        return
    if not found:
        click.echo("There are no such tokens.")
        return
    print_table(
        ("ID", "OWNER", "REQUESTER", "RENEWERS", "EXPIRES", "UNTIL", *("SECRET",) * secrets),
        (
            (
                each.token_id,
                each.owner,
                each.requester,
                ",".join(each.renewers) or None,
                time_text(each.expires_ms),
                time_text(each.lives_until_ms),
                *(each.secret,) * secrets,
            )
            for each in found
        ),
    )


def _ask(bootstrap: str | None, question: Callable[[TokenAdmin], _Result]) -> _Result:
    with open_cluster(bootstrap) as client:
        try:
            return question(TokenAdmin(client))
        except ValueError as error:
            raise click.UsageError(str(error)) from None


def _revealed(given: str) -> str:
    return Secret("SECRET", given).reveal()


def _milliseconds(text: str | None, option: str, default: int) -> int:
    return default if text is None else parse_duration(text, option)


def _document(token: DelegationToken, *, has_secret: bool = True) -> dict[str, Any]:
    document = asdict(token)
    if not has_secret:
        del document["secret"]
    return document
