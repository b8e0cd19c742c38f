"""`archive`: topics or a store directory -> Parquet files by topic and day, each message once.

    OUT/topic=Orders/day=2026-03-01/part-00000001-00000-0000.parquet
    OUT/_firearrow/                      the journal: offsets and files of every round (Spark does not read names with `_`)
    OUT/_firearrow/staging/00000001/     files of a round that is not done

Tasks write to the staging directory under names of their own. When all have, the round is done: its record lists the files, and
the driver moves them to their places. So the table never has half a round in it for longer than the moves take, a round that
failed leaves nothing, and one that is repeated after a kill begins with an empty staging directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack

from firearrow.spark.decode.columns import Columns, chosen
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.pipelines.engine import Engine
from firearrow.spark.pipelines.job import Rounds, RunOptions, Totals
from firearrow.spark.pipelines.journal import Journal
from firearrow.spark.pipelines.parquet_writer import WriteTask, write_part
from firearrow.spark.pipelines.selection import Selection
from firearrow.spark.pipelines.sources import Json, Part, Source, source_of
from firearrow.spark.pipelines.storage import StorageLocation

JOURNAL: Final = "_firearrow"
COMPRESSIONS: Final = ("zstd", "snappy", "lz4", "gzip", "none")


def archive(
    engine: Engine,
    options: Mapping[str, str],
    out: str,
    *,
    compression: str = "zstd",
    lossy: bool = False,
    **course: Unpack[RunOptions],
) -> Totals:
    """Brings an archive up to date. `options` are those of the data source (`subscribe`, `path`, `columns`, ...).

    Run again with the same words it goes on where it was; with `follow_s` it looks for more so often until `stopped`.
    `lossy`: go on where messages were deleted before they were read, instead of failing with their range.
    """
    return write_archive(engine, source_of(options, lossy=lossy), out, compression=compression, **course)


def write_archive(
    engine: Engine,
    source: Source,
    out: str,
    *,
    job: str = "archive",
    more: Json | None = None,
    compression: str = "zstd",
    selection: Selection | None = None,
    **course: Unpack[RunOptions],
) -> Totals:
    if compression not in COMPRESSIONS:
        raise SparkOptionError(f"compression is {compression!r}, expected one of {', '.join(COMPRESSIONS)}")
    columns = _columns(source)
    place = StorageLocation(out)
    _check_empty(place)

    def work(number: int, plan: Json) -> Json:
        staging = f"{JOURNAL}/staging/{number:08}"
        place.remove(staging)

        def task(index: int, part: Part) -> WriteTask:
            final = f"part-{number:08}-{index:05}"
            return WriteTask(part, source.options, columns, out, staging, final, compression, selection)

        parts = source.pieces(plan, engine.parallelism)
        results = engine.run([task(index, part) for index, part in enumerate(parts)], write_part)
        files = [file for result in results for file in result["files"]]
        return {
            "files": files,
            "rows": sum(file["rows"] for file in files),
            "bytes": sum(file["bytes"] for file in files),
        }

    def after(done: Json) -> None:
        moved = [file for file in done["files"] if place.exists(file["staged"])]
        for file in moved:
            place.move(file["staged"], file["path"])
        days = {file["path"].rpartition("/")[0] for file in moved}
        for directory in sorted({*days, *(day.rpartition("/")[0] for day in days), ""}):
            place.sync(directory)
        place.remove(f"{JOURNAL}/staging")

    with Journal(place, JOURNAL) as journal:
        named = {"columns": list(columns.names), "propertiesAs": source.options["propertiesAs"]}
        journal.begin({"job": job, **named, **source.identity(), **(more or {})})
        return Rounds(journal, source, job, work, after, **course).run()


def archived_files(out: str) -> dict[int, list[Json]]:
    """Round -> its files: what is in an archive."""
    place = StorageLocation(out)
    journal = Journal(place, JOURNAL)
    if journal.job() is None:
        raise SparkOptionError(f"{out!r} is not an archive: there is no {JOURNAL}/job.json in it")
    return {number: journal.get("done", number)["files"] for number in sorted(journal.rounds()["done"])}


def read_archive(spark: Any, out: str) -> Any:
    """An archive as a frame: the columns of the source, and `day`. Only what is done is read."""
    place = StorageLocation(out)
    found = Journal(place, JOURNAL).job()
    if found is None:
        raise SparkOptionError(f"{out!r} is not an archive: there is no {JOURNAL}/job.json in it")
    kept = chosen([name for name in found["columns"] if name != "topic"], found["propertiesAs"])
    ddl = f"{kept.ddl}, topic string, day date"
    # Spark escapes what it writes into paths and so do we; the schema keeps topics that look like numbers texts.
    return spark.read.schema(ddl).option("basePath", place.uri()).parquet(place.uri())


def _columns(source: Source) -> Columns:
    """What is asked for, and what the paths are made of."""
    names = source.options["columns"]
    if names is None:
        return chosen(None, source.options["propertiesAs"])
    found = chosen(names, source.options["propertiesAs"])
    needed = [name for name in ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp") if name not in found.names]
    return chosen([*found.names, *needed], source.options["propertiesAs"])


def _check_empty(place: StorageLocation) -> None:
    """An archive is made in a directory of its own: a table that somebody else wrote is not added to."""
    names = place.names()
    if names and JOURNAL not in names:
        raise SparkOptionError(
            f"{place.location!r} is neither empty nor an archive (it has {names[0]!r}): give a new directory, or an archive"
        )
