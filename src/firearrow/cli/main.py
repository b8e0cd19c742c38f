"""The entry point: the tree of commands, each imported when it is chosen.

Servers open their ports within a second of being started, so that only click is imported before a command is chosen.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from firearrow import __version__
from firearrow.cli.arguments import did_you_mean
from firearrow.cli.command import CONTEXT, FAILURE, USAGE, Group, LazyCommand
from firearrow.escaping import escape_controls

SERVERS: Final = "Servers"
MESSAGES: Final = "Messages"
ADMINISTRATION: Final = "Administration"
TOOLS: Final = "Tools"

COMMANDS: Final = {
    "up": LazyCommand("servers.run:up", "Start a name server and brokers on this machine.", SERVERS),
    "namesrv": LazyCommand("servers.run:namesrv", "Start a name server.", SERVERS),
    "broker": LazyCommand("servers.run:broker", "Start a broker; or, with a subcommand, inspect running brokers.", SERVERS),
    "send": LazyCommand("messages.send:send", "Send messages.", MESSAGES),
    "consume": LazyCommand("messages.consume:consume", "Print the messages of a topic.", MESSAGES),
    "bench": LazyCommand("messages.bench:bench", "Measure the throughput and latency of this client.", MESSAGES),
    "topic": LazyCommand("operator.topic:topic", "List, create, change, delete and inspect topics.", ADMINISTRATION),
    "group": LazyCommand("operator.group:group", "List, create, change, delete and inspect consumer groups.", ADMINISTRATION),
    "message": LazyCommand("operator.message:message", "Find, show, track and resend messages.", ADMINISTRATION),
    "offset": LazyCommand("operator.offset:offset", "Show, reset, skip and clone the offsets of groups.", ADMINISTRATION),
    "dlq": LazyCommand("operator.dlq:dlq", "List, resend, export and import dead letters.", ADMINISTRATION),
    "client": LazyCommand("operator.client:client", "List and inspect connected consumers and producers.", ADMINISTRATION),
    "cluster": LazyCommand(
        "operator.cluster:cluster", "List clusters; kill, stop and start members of `up --cluster`.", ADMINISTRATION
    ),
    "trace": LazyCommand("operator.trace:trace", "Show the path of a message.", ADMINISTRATION),
    "config": LazyCommand("operator.config:config", "Read and change settings of brokers and name servers.", ADMINISTRATION),
    "user": LazyCommand("operator.user:user", "List, create, change and delete users.", ADMINISTRATION),
    "acl": LazyCommand("operator.acl:acl", "List, create, change and delete the permissions of users.", ADMINISTRATION),
    "doctor": LazyCommand("operator.doctor:doctor", "Check a cluster for problems and say how to fix them.", ADMINISTRATION),
    "mqadmin": LazyCommand("mqadmin:mqadmin", "Apache's mqadmin: its subcommands, options and output.", TOOLS),
    "spark": LazyCommand("spark.commands:spark", "Archive, transfer, replay, deduplicate and audit topics.", TOOLS),
    "completion": LazyCommand("completion:completion", "Print the completion script of a shell.", TOOLS),
}

EPILOG: Final = """\b
Try it:
  firearrow up                              start a name server and a broker here
  firearrow send Orders hello --tag new     send a message
  firearrow consume Orders                  print what the topic holds and receives

`firearrow COMMAND --help` lists the options of a command. Exit codes: 0 success, 1 failure, 2 invalid usage."""


@click.group(cls=Group, lazy=COMMANDS, context_settings=CONTEXT, invoke_without_command=True, epilog=EPILOG)
@click.version_option(__version__, message="firearrow %(version)s")
@click.pass_context
def firearrow(ctx: click.Context) -> None:
    """A message broker and name server compatible with Apache RocketMQ, with clients and administration."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit with its code."""
    sys.exit(run(sys.argv[1:] if argv is None else list(argv)))


def run(words: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    try:
        return firearrow.main(list(words), prog_name="firearrow", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help(), file=sys.stderr)
        return USAGE
    except click.UsageError as error:
        prog = error.ctx.command_path if error.ctx is not None else "firearrow"
        print(f"{prog}: {escape_controls(usage_message(error))}", file=sys.stderr)
        return USAGE
    except click.Abort:
        print("firearrow: aborted", file=sys.stderr)
        return FAILURE
    except click.ClickException as error:
        print(f"firearrow: {escape_controls(error.format_message())}", file=sys.stderr)
        return FAILURE


def usage_message(error: click.UsageError) -> str:
    """Return what is wrong with a command line, in one line without a capital and a full stop."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        known = [name for param in error.ctx.command.get_params(error.ctx) for name in param.opts if _is_shown(param)]
        return (
            f"no such option {error.option_name}; {did_you_mean(error.option_name, known) or f'see {error.ctx.command_path} -h'}"
        )
    text = " ".join(error.format_message().split()).removesuffix(".")
    return text[:1].lower() + text[1:]


def _is_shown(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and not param.hidden
