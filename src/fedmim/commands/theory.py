"""`fedmim theory`: bounds for given constants, constants measured on a task, and demonstrations of the theorems."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table

from fedmim.commands.output import free_folder
from fedmim.errors import UserError
from fedmim.experiments.config import Config, Problem, defaults, pinned
from fedmim.flags import parse, select
from fedmim.results.number_formats import listed
from fedmim.theory.constants import SHOWN_METHODS, FederationShape, Inertia, ProblemConstants

if TYPE_CHECKING:
    from fedmim.theory.measurement import MeasuredConstants
    from fedmim.theory.recommendation import Recommendation

PROGRAM = "fedmim theory"
BOUNDS = (
    "Evaluate Theorems 1 and 2 for given constants: the largest admissible learning rate, the constants of the proof, "
    "and the bound against rounds, for FedAvg, FedCM and FedMIM. The defaults of the constants are placeholders, not "
    "the values of any task. With --measure: estimate the constants of a task and recommend settings (see `fedmim "
    "theory --measure --help`). With --show: run the demonstrations of the theorems."
)
PLACEHOLDERS = ("L", "sigma", "G", "B", "gap")  # their defaults are not typical of any task
REMEDY = "Give the values of your task, or estimate them with --measure."
MEASURE = (
    "Run FedMIM on a task, estimate L, sigma, G, B, C, the client drift and the response along the run, and recommend "
    "eta, K, alpha, beta and the leap's look-ahead, with reasons: what works in practice, then what the theorem "
    "guarantees."
)
SHOW = (
    "Run the demonstrations of docs/theory.md and docs/pictures.md in the simulator and draw their figures. All "
    "of them take a few minutes."
)


@dataclass(frozen=True)
class Mode:
    """The options that all modes of the command share."""

    out: str | None = None
    """Output folder; default: a new folder in runs/."""
    measure: bool = False
    """Estimate the constants of a task. This mode has other options: see --measure --help."""
    show: bool = False
    """Run the demonstrations of the theorems and draw their figures."""


@dataclass(frozen=True)
class BoundOptions(Mode):
    """The options for bounds."""

    rounds: int = 1000
    """Number of rounds, T."""
    lr: float | None = None
    """Local learning rate; default: for each method, the one with the lowest bound after T rounds."""
    accuracy: float | None = None
    """Also show the number of rounds until the bound is at most this value."""


@dataclass(frozen=True)
class MeasureOptions(Mode):
    """The options of --measure."""

    points: int = 5
    """Number of rounds at which to measure, including the first and the last model."""
    curvature_clients: int = 20
    """Number of clients used to measure curvature and noise."""


@dataclass(frozen=True)
class ShowOptions(Mode):
    """The options of --show."""

    figures: str | None = None
    """Names of the figures, for example paths,round; default: all."""


def theory(argv: list[str]) -> None:
    """Run the command."""
    if "--show" in argv:
        show_demonstrations(argv)
    elif "--measure" in argv:
        measure_task(argv)
    else:
        bounds(argv)


def bounds(argv: list[str]) -> None:
    """Print and draw the bounds for given constants."""
    parts = {
        "problem": ProblemConstants(),
        "federation": FederationShape(),
        "inertia": SHOWN_METHODS["FedMIM"],
        "bound": BoundOptions(),
    }
    flags = parse(PROGRAM, BOUNDS, argv, parts)
    values = flags.values
    constants, federation = ProblemConstants(**values["problem"]), FederationShape(**values["federation"])
    chosen, methods = values["bound"], {**SHOWN_METHODS, "FedMIM": Inertia(**values["inertia"])}

    from fedmim.theory.bound_comparison import BoundComparison

    compared = BoundComparison(constants, federation, methods, chosen["rounds"], chosen["lr"], chosen["accuracy"])
    console = _console()
    console.print(compared.describe(), style="bold")
    if placeholders := [name for name in PLACEHOLDERS if name not in flags.changes("problem")]:
        console.print(f"Placeholders of 1, not measured: {listed(placeholders)}. {REMEDY}\n")
    console.print(compared.table())
    for note in compared.notes():
        console.print(note, style="dim")
    path = _folder(chosen["out"]) / "theory-bounds.png"
    compared.draw(path)
    print(f"\n{path}")


def measure_task(argv: list[str]) -> None:
    """Measure the constants of a task and recommend settings."""
    base = Config.of(defaults(select(argv).data or Problem.data), PROGRAM)
    parts = {
        "measure": MeasureOptions(),
        "inertia": SHOWN_METHODS["FedMIM"],
        "problem": base.problem,
        "settings": base.settings,
        "execution": base.execution,
    }
    values = parse(f"{PROGRAM} --measure", MEASURE, argv, parts).values
    chosen, inertia = values["measure"], Inertia(**values["inertia"])
    config = Config.of(pinned({**values["problem"], **values["settings"], **values["execution"]}), PROGRAM)

    from fedmim.files import write_text
    from fedmim.report.progress import status_line
    from fedmim.theory.measurement import measure
    from fedmim.theory.recommendation import recommend

    with status_line(Console(stderr=True)) as tell:
        tell(f"loading {config.problem.short('data')}")
        found = measure(
            config.task(),
            config.settings,
            inertia,
            config.execution,
            points=chosen["points"],
            clients=chosen["curvature_clients"],
            on_progress=tell,
        )
    advised = recommend(found, inertia, config.settings.rounds)
    console = _console()
    _print_measured(console, found, advised)
    path = _folder(chosen["out"]) / "constants.json"
    advice = {"problem": asdict(advised.constants), "advice": [asdict(each) for each in advised.advice]}
    kept = {**asdict(found), **advice, "settings": config.flat(), "inertia": asdict(inertia)}
    write_text(path, json.dumps(kept, indent=2) + "\n")
    print(f"\n{path}")


def show_demonstrations(argv: list[str]) -> None:
    """Run the demonstrations and draw their figures."""
    values = parse(f"{PROGRAM} --show", SHOW, argv, {"show": ShowOptions()}).values["show"]

    from fedmim.report.progress import status_line
    from fedmim.simulation.training import one_thread
    from fedmim.theory.demonstrations import DEMONSTRATIONS

    wanted = values["figures"].split(",") if values["figures"] else list(DEMONSTRATIONS)
    if unknown := [name for name in wanted if name not in DEMONSTRATIONS]:
        raise UserError(f"figures: no figure {unknown[0]!r}; there are {listed(list(DEMONSTRATIONS))}")
    console, folder = _console(), _folder(values["out"])
    for name in wanted:
        with status_line(Console(stderr=True)) as tell, one_thread():  # the matrices are too small for several threads
            result = DEMONSTRATIONS[name](partial(_count_rounds, tell, name))
        path = folder / f"theory-{name}.png"
        result.draw(path)
        console.print(str(path), style="bold")
        for line in result.findings():
            console.print(line, markup=False)


def _count_rounds(tell: Callable[[str], None], name: str, total: int) -> Callable[[], None]:
    """A function that reports one more finished round with each call."""
    numbers = count(1)
    return lambda: tell(f"{name}: round {next(numbers)} of {total}")


def _print_measured(console: Console, measured: MeasuredConstants, advised: Recommendation) -> None:
    """Print the measured points, the constants and the recommendations."""
    headings = ("round", "f", "||grad f||²", "mean ||grad f_i||²", "sigma²", "sharpest client", "response")
    columns = (Column(heading, justify="right") for heading in headings)
    table = Table(*columns, box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    for point in measured.points:
        figures = point.value, point.gradient, point.local_gradients, point.noise, point.sharpness, point.response
        table.add_row(str(point.round), *(f"{figure:.3g}" for figure in figures))
    console.print(table)
    p, f = advised.constants, measured.federation
    mu = "" if p.mu is None else f", mu at most {p.mu:.2g}"
    console.print(
        f"\nL {p.L:.3g}, sigma {p.sigma:.3g}, G {p.G:.3g} at B {p.B:.3g}, C {p.C:.3g}, f0 - f* {p.gap:.3g}{mu}; "
        f"N {f.clients}, S {f.active}, K {f.steps}",
        style="bold",
    )
    console.print(
        "Measured along this run. In the theorems, the constants are suprema over all parameters.\n", style="dim"
    )
    number = count(1)
    for heading, found in (("In practice", advised.practice), ("What Theorem 1 guarantees", advised.guarantees)):
        console.print(f"{heading}:")
        for advice in found:
            console.print(f"{next(number)}. {advice.what}", style="bold", markup=False)
            indented = textwrap.fill(f"{advice.why}.", console.width - 1, initial_indent="   ", subsequent_indent="   ")
            console.print(indented, markup=False)


def _console() -> Console:
    """Standard output; 120 columns wide if it is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def _folder(out: str | None) -> Path:
    folder = Path(out) if out else free_folder("theory")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"out: {folder} is a file; give a folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
