"""`firearrow completion SHELL`: click's completion script. Names of topics, groups and brokers come from the name server."""

from __future__ import annotations

import click


@click.command(epilog='Example: eval "$(firearrow completion bash)"')
@click.argument("shell", metavar="SHELL", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the completion script of SHELL: bash, zsh or fish. Evaluate it in the shell's start file."""
    from click.shell_completion import get_completion_class

    from firearrow.cli.main import firearrow

    kind = get_completion_class(shell)
    assert kind is not None, "click.Choice allows only shells that click knows"
    click.echo(kind(firearrow, {}, "firearrow", "_FIREARROW_COMPLETE").source())
