"""`firearrow broker rejoin` and `seed`: changes to the store directory of a stopped member of an elected group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

import click

from firearrow.cli.command import CONTEXT, DESTRUCTIVE_OPTIONS, SUCCESS, options, output_option
from firearrow.cli.terminal import NotConfirmedError, Output
from firearrow.ha.raft.hard_state import HardState, mark_as_seed, mark_for_rejoin
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk, RealDisk

directory_options = options(
    click.argument("directory", type=click.Path(file_okay=False, path_type=Path)),
    output_option,
    *DESTRUCTIVE_OPTIONS,
)


@click.command("rejoin", context_settings=CONTEXT)
@directory_options
def rejoin(directory: Path, output: str, yes: bool, dry_run: bool) -> int:
    """Let a member with a restored store directory catch up before it votes.

    DIRECTORY is storePathRootDir of a stopped member of an elected group. Run this after restoring it from a backup, before the
    member is started: the backup lacks messages that the member has acknowledged since.
    """
    action = f"exclude the member in {directory} from elections until it has caught up"
    return _change(directory, action, Output(output, yes=yes, dry_run=dry_run), _mark_for_rejoin)


@click.command("seed", context_settings=CONTEXT)
@directory_options
def seed(directory: Path, output: str, yes: bool, dry_run: bool) -> int:
    """Declare the log of one member authoritative after a majority of its group has lost its data.

    DIRECTORY is storePathRootDir of a stopped member of an elected group. Members without data then vote for it and copy its log.
    Acknowledged messages that it does not have are lost, so choose the member with the longest log. With an empty directory, this
    forms a new group without waiting for all members.
    """
    action = f"let members without data elect the member in {directory} and copy its log"
    return _change(directory, action, Output(output, yes=yes, dry_run=dry_run), mark_as_seed)


def _mark_for_rejoin(disk: Disk, directory: str) -> HardState | None:
    return mark_for_rejoin(disk, directory, SystemRandom())


def _change(directory: Path, action: str, out: Output, mark: Callable[[Disk, str], HardState | None]) -> int:
    disk = RealDisk()
    if not directory.is_dir():
        raise click.ClickException(f"{directory} does not exist")
    try:
        if not out.confirmed(action):
            return SUCCESS
        lock = disk.lock(str(directory / "lock"))
        try:
            state = mark(disk, str(directory))
        finally:
            lock.release()
    except (OSError, StoreError, NotConfirmedError) as error:
        raise click.ClickException(str(error)) from error
    if state is None:
        raise click.ClickException(f"{directory} is not the store directory of a member of an elected group: it has no currterm")
    out.done(f"marked {directory}; start the member now", directory=str(directory), term=state.term, member=state.identity.member)
    out.flush()
    return SUCCESS
