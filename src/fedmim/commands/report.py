"""`fedmim report`, `plot` and `watch`: show runs as an HTML page, as figures for a paper, or as a live page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import Positional

from fedmim.errors import UserError
from fedmim.flags import parse
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_results

Short: Any = tyro.conf.arg(aliases=["-o"])


@dataclass(frozen=True)
class RunFolders:
    """The arguments of all three commands."""

    runs: Annotated[Positional[Sequence[str]], tyro.conf.arg(metavar="RUN_OR_SWEEP...")] = ()
    """Run folders, comparison folders, or folders that contain them at any depth."""


@dataclass(frozen=True)
class ReportOptions(RunFolders):
    """The options of `fedmim report`."""

    out: Annotated[str, Short] = "report.html"
    """Output file."""
    target: float | None = None
    """Target accuracy for rounds and bytes to target; default: that of the comparison or the data set."""


@dataclass(frozen=True)
class PlotOptions(RunFolders):
    """The options of `fedmim plot`."""

    out: Annotated[str, Short] = "figures"
    """Output folder."""
    y: tuple[str, ...] = ("accuracy", "test-loss", "train-loss", "consistency", "clients")
    """What to draw: accuracy, test-loss, train-loss, consistency (client drift), clients (the classes that each client
    holds)."""
    x: tuple[str, ...] = ("rounds", "bytes", "seconds", "time")
    """Horizontal axes: rounds, bytes, seconds, time (simulated; only for runs that have it)."""
    formats: tuple[str, ...] = ("png", "svg")
    """File formats: png, svg, pdf."""
    size: str = "column"
    """Width of the figures in a two-column paper: column or page."""


@dataclass(frozen=True)
class WatchOptions(RunFolders):
    """The options of `fedmim watch`."""

    host: str = "127.0.0.1"
    """Address to listen on. With the default, only this machine can open the page."""
    port: int | None = None
    """Port to listen on; default: 8765, or any free port if it is in use."""
    target: float | None = None
    """Target accuracy for rounds and bytes to target; default: that of the comparison or the data set."""


def report(argv: list[str]) -> None:
    """Write the page of some runs."""
    from fedmim.report.page import write_page
    from fedmim.report.progress import status_line

    about = "Write one HTML file with the charts, tables and commands of runs. It works offline in any browser."
    values = parse("fedmim report", about, argv, {"report": ReportOptions()}).values["report"]
    left_out: list[str] = []

    def leave_out(message: str) -> None:
        warn(message)
        left_out.append(message)

    paths, path = paths_of(values["runs"]), Path(values["out"])
    with status_line(Console(stderr=True), "reading the runs") as tell:
        runs = load_results(find_runs(paths, leave_out), leave_out)
        if path.is_dir():
            path /= "report.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        tell("writing the page")
        write_page(group_runs(runs, values["target"]), path, left_out)
    print(f"{path}: {len(runs)} run{'s' * (len(runs) > 1)}, {path.stat().st_size / 1e6:.1f} MB")
    print(f"open {path.resolve().as_uri()}")


def plot(argv: list[str]) -> None:
    """Write figures for a paper."""
    from fedmim.report.charts import write_charts
    from fedmim.report.progress import status_line

    about = "Draw the charts of runs as figures for a paper."
    values = parse("fedmim plot", about, argv, {"plot": PlotOptions()}).values["plot"]
    paths = paths_of(values["runs"])
    with status_line(Console(stderr=True), "reading the runs") as tell:
        runs = load_results(find_runs(paths, warn), warn)
        tell("drawing")
        write_charts(
            group_runs(runs),
            Path(values["out"]),
            charts=values["y"],
            axes=values["x"],
            formats=values["formats"],
            size=values["size"],
            told=print,
            warn=warn,
        )


def watch(argv: list[str]) -> None:
    """Serve a live page of runs."""
    from fedmim.report.watch import PageServer, Watched

    about = "Serve a live page of runs on this machine, updated after every round. Press Ctrl-C to stop."
    values = parse("fedmim watch", about, argv, {"watch": WatchOptions()}).values["watch"]
    with PageServer(Watched(paths_of(values["runs"]), values["target"]), values["host"], values["port"]) as server:
        print(f"open {server.address} (press Ctrl-C to stop)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def paths_of(words: Sequence[str]) -> list[Path]:
    """The given folders; at least one is required."""
    if not words:
        raise UserError("runs: give at least one run folder, comparison folder, or folder that contains them")
    return [Path(word) for word in words]


def warn(message: str) -> None:
    """Print a warning about a skipped file to standard error."""
    print(f"fedmim: skipped: {message}", file=sys.stderr)
