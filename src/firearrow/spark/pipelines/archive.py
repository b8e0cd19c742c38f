"""The job `archive`: topics or a store directory as Parquet files by topic and day, each message once.

    OUT/topic=Orders/day=2026-03-01/part-00000001-00000-0000.parquet
    OUT/_firearrow/                      the journal: offsets and files of every increment (Spark ignores names with `_`)
    OUT/_firearrow/staging/00000001/     files of an unfinished increment

Tasks write to the staging directory under unique names. When all have finished, the journal records the increment as done, with
its files, and the driver moves them into the table. Readers see a partial increment only while the files are moved. A failed
increment leaves nothing in the table, and a repeated one starts with an empty staging directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack

from firearrow.spark.decode.columns import Columns, select_columns
from firearrow.spark.errors import SparkOptionError
from firearrow.spark.pipelines.engine import Engine
from firearrow.spark.pipelines.job import IncrementalJob, RunOptions, Totals
from firearrow.spark.pipelines.journal import Journal
from firearrow.spark.pipelines.parquet_writer import WriteTask, write_part
from firearrow.spark.pipelines.selection import Selection
from firearrow.spark.pipelines.sources import Json, MessageSource, Part, open_source
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
    **run_options: Unpack[RunOptions],
) -> Totals:
    """Bring an archive up to date. `options` are those of the data source (`subscribe`, `path`, `columns`, ...).

    A second run with the same arguments resumes where the first stopped. With `follow_s` the job checks for new messages at
    this interval until `stopped`. `lossy`: continue after messages that were deleted before they were read instead of failing.
    """
    return write_archive(engine, open_source(options, lossy=lossy), out, compression=compression, **run_options)


def write_archive(
    engine: Engine,
    source: MessageSource,
    out: str,
    *,
    job: str = "archive",
    extra_identity: Json | None = None,
    compression: str = "zstd",
    selection: Selection | None = None,
    **run_options: Unpack[RunOptions],
) -> Totals:
    if compression not in COMPRESSIONS:
        raise SparkOptionError(f"compression is {compression!r}, expected one of {', '.join(COMPRESSIONS)}")
    columns = _columns(source)
    storage = StorageLocation(out)
    _check_empty(storage)

    def work(number: int, plan: Json) -> Json:
        staging = f"{JOURNAL}/staging/{number:08}"
        storage.remove(staging)

        def task(index: int, part: Part) -> WriteTask:
            final = f"part-{number:08}-{index:05}"
            return WriteTask(part, source.options, columns, out, staging, final, compression, selection)

        parts = source.parallel_parts(plan, engine.parallelism)
        results = engine.run([task(index, part) for index, part in enumerate(parts)], write_part)
        files = [file for result in results for file in result["files"]]
        return {"files": files} | {name: sum(file[name] for file in files) for name in ("rows", "bytes")}

    def after(done: Json) -> None:
        moved = [file for file in done["files"] if storage.exists(file["staged"])]
        for file in moved:
            storage.move(file["staged"], file["path"])
        day_directories = {file["path"].rpartition("/")[0] for file in moved}
        for directory in sorted({*day_directories, *(day.rpartition("/")[0] for day in day_directories), ""}):
            storage.sync(directory)
        storage.remove(f"{JOURNAL}/staging")

    with Journal(storage, JOURNAL) as journal:
        identity = {"columns": list(columns.names), "propertiesAs": source.options["propertiesAs"]}
        journal.begin({"job": job, **identity, **source.identity(), **(extra_identity or {})})
        return IncrementalJob(journal, source, job, work, after, **run_options).run()


def archived_files(out: str) -> dict[int, list[Json]]:
    """Return the files of an archive by increment."""
    journal = Journal(StorageLocation(out), JOURNAL)
    journal.job()  # fails unless it is an archive
    return {number: journal.get("done", number)["files"] for number in sorted(journal.increments()["done"])}


def read_archive(spark: Any, out: str) -> Any:
    """Return an archive as a frame: the columns of the source, and `day`."""
    storage = StorageLocation(out)
    found = Journal(storage, JOURNAL).job()
    kept = select_columns([name for name in found["columns"] if name != "topic"], found["propertiesAs"])
    ddl = f"{kept.ddl}, topic string, day date"
    # Paths are escaped as Spark escapes them. The schema keeps topics that look like numbers as text.
    return spark.read.schema(ddl).option("basePath", storage.uri()).parquet(storage.uri())


def _columns(source: MessageSource) -> Columns:
    """Return the requested columns, and those needed for the paths and for reading the archive."""
    requested = select_columns(source.options["columns"]).names
    names = dict.fromkeys((*requested, "topic", "brokerName", "queueId", "queueOffset", "storeTimestamp"))
    return select_columns(list(names), source.options["propertiesAs"])


def _check_empty(storage: StorageLocation) -> None:
    """Reject a directory that is neither empty nor an archive."""
    names = storage.names()
    if names and JOURNAL not in names:
        raise SparkOptionError(
            f"{storage.location!r} is neither empty nor an archive (it has {names[0]!r}): give a new directory, or an archive"
        )
