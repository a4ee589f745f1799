"""`fedmim report`, `plot` and `watch`: any runs as a page, as figures for a paper, as a page that follows them."""

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
from fedmim.results.loading import find_runs, load_runs

Short: Any = tyro.conf.arg(aliases=["-o"])


@dataclass(frozen=True)
class RunFolders:
    """What all three commands are given."""

    runs: Annotated[Positional[Sequence[str]], tyro.conf.arg(metavar="RUN_OR_SWEEP...")] = ()
    """Run folders, comparisons, or folders with such anywhere below."""


@dataclass(frozen=True)
class ReportOptions(RunFolders):
    """The flags of `fedmim report`."""

    out: Annotated[str, Short] = "report.html"
    """The file to write."""
    target: float | None = None
    """Accuracy that rounds and bytes are counted to; unless given, the comparison's own or the data set's usual."""


@dataclass(frozen=True)
class PlotOptions(RunFolders):
    """The flags of `fedmim plot`."""

    out: Annotated[str, Short] = "figures"
    """The folder to write to."""
    y: tuple[str, ...] = ("accuracy", "test-loss", "train-loss", "consistency", "clients")
    """What to draw: accuracy, test-loss, train-loss, consistency, clients (who holds which classes)."""
    x: tuple[str, ...] = ("rounds", "bytes", "seconds")
    """Against what: rounds, bytes, seconds."""
    formats: tuple[str, ...] = ("png", "svg")
    """Kinds of files: png, svg, pdf."""
    size: str = "column"
    """Width in a two-column paper: column or page."""


@dataclass(frozen=True)
class WatchOptions(RunFolders):
    """The flags of `fedmim watch`."""

    host: str = "127.0.0.1"
    """Where to listen; any other than this machine's own lets others look, too."""
    port: int | None = None
    """The port; unless given, 8765 or, where that is taken, any."""
    target: float | None = None
    """Accuracy that rounds and bytes are counted to; unless given, the comparison's own or the data set's usual."""


def report(argv: list[str]) -> None:
    """Write the page of runs."""
    from fedmim.report.page import write_page

    about = "Write one HTML file with the charts, verdict, tables and commands of runs; it needs nothing but a browser."
    values = parse("fedmim report", about, argv, {"report": ReportOptions()}).values["report"]
    left_out: list[str] = []

    def leave_out(message: str) -> None:
        warn(message)
        left_out.append(message)

    runs = load_runs(find_runs(paths_of(values["runs"]), leave_out), leave_out)
    path = Path(values["out"])
    if path.is_dir():
        path /= "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    with Console(stderr=True).status("writing the page"):
        write_page(group_runs(runs, values["target"]), path, left_out)
    print(f"{path}: {len(runs)} run{'s' * (len(runs) > 1)}, {path.stat().st_size / 1e6:.1f} MB")
    print(f"open {path.resolve().as_uri()}")


def plot(argv: list[str]) -> None:
    """Write figures for a paper."""
    from fedmim.report.charts import write_charts

    about = "Draw the charts of runs for a paper."
    values = parse("fedmim plot", about, argv, {"plot": PlotOptions()}).values["plot"]
    runs = load_runs(find_runs(paths_of(values["runs"]), warn), warn)
    with Console(stderr=True).status("drawing"):
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
    """Serve the page of runs in progress."""
    from fedmim.report.watch import PageServer, Watched

    about = "Serve the page of runs on this machine, with every round as it comes in. Ctrl-C ends it."
    values = parse("fedmim watch", about, argv, {"watch": WatchOptions()}).values["watch"]
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
    """A line on standard error about what is left out."""
    print(f"fedmim: left out: {message}", file=sys.stderr)
