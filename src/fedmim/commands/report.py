"""`fedmim report`, `plot` and `watch`: any runs as a page, as figures for a paper, as a page that follows them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from fedmim.errors import UserError
from fedmim.flags import Flag, Group, parse
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_runs

RUNS = Flag(
    "runs",
    Positional[Sequence[str]],
    (),
    "Run folders, comparisons, or folders with such anywhere below.",
    metavar="RUN_OR_SWEEP...",
)
TARGET = Flag(
    "target",
    float | None,
    None,
    "Accuracy that rounds and bytes are counted to; unless given, the comparison's own or the data set's usual.",
)


def report(argv: list[str]) -> None:
    """Write the page of runs."""
    from fedmim.report.page import write_page

    out = Flag("out", str, "report.html", "The file to write.", short="-o", metavar="FILE")
    about = "Write one HTML file with the charts, verdict, tables and commands of runs; it needs nothing but a browser."
    values = parse("fedmim report", about, [Group("report", [RUNS, out, TARGET])], argv)["report"]
    folders = find_runs(paths_of(values["runs"]), warn)
    path = Path(values["out"])
    if path.is_dir():
        path /= "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    with Console(stderr=True).status("writing the page"):
        write_page(group_runs(load_runs(folders), values["target"]), path)
    print(f"{path}: {len(folders)} run{'s' * (len(folders) > 1)}, {path.stat().st_size / 1e6:.1f} MB")
    print(f"open {path.resolve().as_uri()}")


def plot(argv: list[str]) -> None:
    """Write figures for a paper."""
    from fedmim.report.charts import CHARTS, FORMATS, SIZES, write_charts
    from fedmim.report.curves import X_AXES

    options = [
        RUNS,
        Flag("out", str, "figures", "The folder to write to.", short="-o", metavar="DIR"),
        Flag("y", tuple[str, ...], tuple(CHARTS), f"What to draw: {', '.join(CHARTS)} (who holds which classes)."),
        Flag("x", tuple[str, ...], tuple(X_AXES), f"Against what: {', '.join(X_AXES)}."),
        Flag("formats", tuple[str, ...], ("png", "svg"), f"Kinds of files: {', '.join(FORMATS)}."),
        Flag("size", str, "column", f"Width in a two-column paper: {' or '.join(SIZES)}."),
    ]
    about = "Draw the charts of runs for a paper."
    values = parse("fedmim plot", about, [Group("plot", options)], argv)["plot"]
    folders = find_runs(paths_of(values["runs"]), warn)
    with Console(stderr=True).status("drawing"):
        write_charts(
            group_runs(load_runs(folders)),
            Path(values["out"]),
            charts=values["y"],
            axes=values["x"],
            formats=values["formats"],
            size=values["size"],
            told=print,
        )


def watch(argv: list[str]) -> None:
    """Serve the page of runs in progress."""
    from fedmim.report.watch import PORT, PageServer, Watched

    options = [
        RUNS,
        Flag("host", str, "127.0.0.1", "Where to listen; any other than this machine's own lets others look, too."),
        Flag("port", int | None, None, f"The port; unless given, {PORT} or, where that is taken, any."),
        TARGET,
    ]
    about = "Serve the page of runs on this machine, with every round as it comes in. Ctrl-C ends it."
    values = parse("fedmim watch", about, [Group("watch", options)], argv)["watch"]
    with PageServer(Watched(paths_of(values["runs"]), values["target"]), values["host"], values["port"]) as server:
        print(f"open {server.address} (Ctrl-C ends it)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def paths_of(words: Sequence[str]) -> list[Path]:
    """The folders named; there must be one."""
    if not words:
        raise UserError("runs: name the folder of a run, of a comparison, or of many")
    return [Path(word) for word in words]


def warn(message: str) -> None:
    """A line on standard error."""
    print(f"fedmim: {message}", file=sys.stderr)
