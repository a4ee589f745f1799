"""Compare the bounds of several methods in a table and a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from rich.table import Table
from rich.text import Text

from fedmim.errors import UserError
from fedmim.theory.bounds import (
    Theorem1,
    Theorem2,
    best_bound,
    best_lr,
    best_lr_under_pl,
    least_rounds_under_pl,
    remark_1_lr,
    rounds_needed,
)
from fedmim.theory.constants import FederationShape, Inertia, ProblemConstants, largest_lr, v_constant
from fedmim.theory.plotting import INK, finish_panel, method_colour, two_panels

TERM_COLOURS = ("#f0e3c4", "#bdbdbd", "#737373", "#9ecae1", "#3182bd", "#d55e00")  # start, then the terms of the floor


@dataclass(frozen=True)
class BoundComparison:
    """Methods, given by their weights, with the same constants and federation, for T rounds."""

    constants: ProblemConstants
    federation: FederationShape
    methods: Mapping[str, Inertia]
    rounds: int
    lr: float | None = None  # None: the best for T, for each method
    accuracy: float | None = None  # if set, show the number of rounds until the bound is at most this

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise UserError(f"rounds: must be at least 1, got {self.rounds}")
        _ = self.bounds  # raises if the learning rate is not admissible

    @cached_property
    def bounds(self) -> dict[str, Theorem1]:
        """Theorem 1 for each method, at the given learning rate or the best one for T."""
        bounds = {}
        for name, inertia in self.methods.items():
            lr = best_lr(self.constants, self.federation, inertia, self.rounds) if self.lr is None else self.lr
            bounds[name] = Theorem1(self.constants, self.federation, inertia, lr)
        return bounds

    def _column(self, bound: Theorem1) -> dict[str, str]:
        """A method's column of the table, row by row."""
        known = self.constants, self.federation, bound.inertia
        chosen = "learning rate eta" if self.lr is not None else f"best learning rate, T = {self.rounds}"
        rows = {
            "A = 1 - sum alpha": f"{bound.inertia.A:.3g}",
            "rho = sum beta": f"{bound.inertia.rho:.3g}",
            "V": f"{v_constant(bound.inertia, self.federation.steps):.4g}",
            "largest learning rate": f"{largest_lr(*known):.3g}",
            chosen: f"{bound.lr:.3g}",
            "lambda": f"{bound.lam:.3g}",
            "floor Psi_1": f"{bound.floor:.3g}",
            **{f"  {name}": f"{term:.2g}" for name, term in bound.terms.items()},
            f"bound at T = {self.rounds}": f"{bound.at(self.rounds):.3g}",
        }
        digits = len(str(self.rounds))
        for power in (digits, digits + 2, digits + 4):
            rows[f"  T = 1e{power}, best learning rate"] = f"{best_bound(*known, 10**power):.3g}"
        if self.accuracy is not None:
            rows[f"rounds to {self.accuracy:g}"] = f"{rounds_needed(*known, self.accuracy):.3g}"
        if self.constants.mu is not None:
            rows |= self._under_pl(bound.inertia)
        return rows

    def _under_pl(self, inertia: Inertia) -> dict[str, str]:
        """The rows of Theorem 2."""
        known = self.constants, self.federation, inertia
        least = least_rounds_under_pl(*known) if self.lr is None else Theorem2(*known, self.lr).least_rounds
        if self.rounds < least:  # the theorem does not hold yet
            lr, floor, at = "-", "-", f"needs T >= {least}"
        else:
            bound = Theorem2(*known, best_lr_under_pl(*known, self.rounds) if self.lr is None else self.lr)
            lr, floor, at = (f"{value:.3g}" for value in (bound.lr, bound.floor, bound.at(self.rounds)))
        return {"under PL: learning rate": lr, "  floor Psi_2": floor, f"  bound at T = {self.rounds}": at}

    def table(self) -> Table:
        """The comparison as a table for the terminal."""
        columns = {name: self._column(bound) for name, bound in self.bounds.items()}
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
        table.add_column("")
        for name in columns:
            table.add_column(Text(name, style=method_colour(name)), justify="right")
        for row in next(iter(columns.values())):
            table.add_row(row, *(column[row] for column in columns.values()))
        return table

    def draw(self, path: Path) -> None:
        """Draw the bound against T, and its terms."""
        with two_panels(path, f"Theorem 1: {self.describe()}") as (left, right):
            self._draw_bounds(left)
            self._draw_terms(right)

    def _draw_bounds(self, axes: Axes) -> None:
        horizon = np.unique(np.logspace(0, np.log10(self.rounds) + 3, 40).astype(int))
        for (name, bound), dash in zip(self.bounds.items(), ("-", "-", "--"), strict=False):
            colour = method_colour(name)
            best = [best_bound(self.constants, self.federation, bound.inertia, int(t)) for t in horizon]
            axes.plot(horizon, best, dash, color=colour, label=f"{name}, best η for each T", linewidth=2)
            fixed = [bound.at(int(t)) for t in horizon]
            axes.plot(horizon, fixed, ":", color=colour, label=f"{name}, η = {bound.lr:.2g}")
        axes.axvline(self.rounds, color=INK, linewidth=0.8)
        finish_panel(axes, "rounds T", "bound on min E||grad f(u_t)||²")

    def _draw_terms(self, axes: Axes) -> None:
        for place, bound in enumerate(self.bounds.values()):
            parts = {"start, (f0 - f*) / (λ η K T)": bound.at(self.rounds) - bound.floor, **bound.terms}
            bottom = 0.0
            for (cause, part), shade in zip(parts.items(), TERM_COLOURS, strict=True):
                axes.bar(place, part, bottom=bottom, color=shade, width=0.6, label=cause if place == 0 else None)
                bottom += part
        axes.set_xticks(range(len(self.methods)), list(self.methods))
        beside = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
        finish_panel(axes, "", f"bound at T = {self.rounds}", log="", legend=beside)

    def describe(self) -> str:
        """The constants and the federation in one line."""
        p, f = self.constants, self.federation
        return (
            f"L {p.L:.3g}, sigma {p.sigma:.3g}, G {p.G:.3g}, B {p.B:.3g}, f0 - f* {p.gap:.3g}, "
            f"C {p.gradient_bound(f):.3g}; N {f.clients}, S {f.active}, K {f.steps}"
        )

    def notes(self) -> list[str]:
        """Notes on how to read the table."""
        remark = remark_1_lr(self.constants, self.federation, self.rounds)
        cap = largest_lr(self.constants, self.federation, next(iter(self.methods.values())))
        beyond = " (above the largest learning rate: T is too small)" if remark >= cap else ""
        lines = [
            "largest learning rate: where lambda reaches 0. The appendix requires 64 K eta L B^2 + "
            "72 eta^2 A K^2 B^2 L^2 < 1, which is over 12 times tighter than the caps in the theorem's text.",
            f"Remark 1's learning rate for T = {self.rounds}, which balances the first-order terms: "
            f"{remark:.3g}{beyond}.",
            "The bound grows with rho and, unless C is far below G^2, with 1 - A. It shows that inertia is safe, not "
            "that it helps; see docs/theory.md for what helps.",
        ]
        if self.constants.C is None:
            value = self.constants.gradient_bound(self.federation)
            lines.append(f"C is assumed to be {value:.3g}, its value at the start; set --C or measure it.")
        return lines
