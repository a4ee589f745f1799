"""The bounds of several methods side by side: as a table and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

from fedmim.errors import UserError
from fedmim.report.style import colour_of
from fedmim.theory.bounds import Theorem1, Theorem2
from fedmim.theory.constants import largest_rate, v_constant
from fedmim.theory.figures import label, logarithmic, panels, save
from fedmim.theory.problem import Federation, Inertia, Problem
from fedmim.theory.rates import (
    best_bound,
    best_rate,
    best_rate_under_pl,
    least_rounds_under_pl,
    remark_1_rate,
    rounds_needed,
)

SHADES = ("#bdbdbd", "#737373", "#9ecae1", "#3182bd", "#d55e00")  # of the floor's terms
START = "#f0e3c4"


@dataclass(frozen=True)
class BoundComparison:
    """What is compared: methods by their weights, on one problem and federation, for T rounds."""

    problem: Problem
    federation: Federation
    methods: Mapping[str, Inertia]
    rounds: int
    lr: float | None = None  # None: for each method the best for T
    accuracy: float | None = None  # how many rounds until there?

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise UserError(f"rounds: must be at least 1, got {self.rounds}")
        for inertia in self.methods.values():
            self.bound(inertia)  # says what is wrong with the rate

    def bound(self, inertia: Inertia) -> Theorem1:
        """Theorem 1 at the rate given, or at the best for T."""
        lr = best_rate(self.problem, self.federation, inertia, self.rounds) if self.lr is None else self.lr
        return Theorem1(self.problem, self.federation, inertia, lr)

    def columns(self) -> dict[str, dict[str, str]]:
        """For each method what the table says, row by row."""
        return {name: self._column(inertia) for name, inertia in self.methods.items()}

    def _column(self, inertia: Inertia) -> dict[str, str]:
        known = self.problem, self.federation, inertia
        bound = self.bound(inertia)
        chosen = "rate eta" if self.lr is not None else f"best rate for T = {self.rounds}"
        rows = {
            "A = 1 - sum alpha": f"{inertia.A:.3g}",
            "rho = sum beta": f"{inertia.rho:.3g}",
            "V": f"{v_constant(inertia, self.federation.steps):.4g}",
            "largest rate": f"{largest_rate(*known):.3g}",
            chosen: f"{bound.lr:.3g}",
            "lambda": f"{bound.lam:.3g}",
            "floor Psi_1": f"{bound.floor:.3g}",
            **{f"  {name}": f"{term:.2g}" for name, term in bound.terms.items()},
            f"bound at T = {self.rounds}": f"{bound.at(self.rounds):.3g}",
        }
        for rounds in self._other_rounds():
            rows[f"  T = {rounds:.0e}, at its best rate".replace("e+0", "e").replace("e+", "e")] = (
                f"{best_bound(*known, rounds):.3g}"
            )
        if self.accuracy is not None:
            rows[f"rounds to {self.accuracy:g}"] = f"{rounds_needed(*known, self.accuracy):.3g}"
        if self.problem.mu is not None:
            rows |= self._under_pl(inertia)
        return rows

    def _other_rounds(self) -> list[int]:
        top = 10 ** len(str(self.rounds))
        return [top, 100 * top, 10_000 * top]

    def _under_pl(self, inertia: Inertia) -> dict[str, str]:
        known = self.problem, self.federation, inertia
        least = least_rounds_under_pl(*known) if self.lr is None else Theorem2(*known, self.lr).least_rounds
        if self.rounds < least:  # the theorem does not speak yet
            shown = "-", "-", f"from T = {least} on"
        else:
            bound = Theorem2(*known, best_rate_under_pl(*known, self.rounds) if self.lr is None else self.lr)
            shown = f"{bound.lr:.3g}", f"{bound.floor:.3g}", f"{bound.at(self.rounds):.3g}"
        return dict(zip(("under PL: rate eta", "  floor Psi_2", f"  bound at T = {self.rounds}"), shown, strict=True))

    def table(self) -> Table:
        """For the terminal."""
        columns = self.columns()
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
        table.add_column("")
        for name in columns:
            table.add_column(Text(name, style=colour_of(name.lower())), justify="right")
        for row in next(iter(columns.values())):
            table.add_row(row, *(column[row] for column in columns.values()))
        return table

    def draw(self, path: Path) -> None:
        """As a picture: the bound against T, and what it is made of."""
        figure, (left, right) = panels(f"Theorem 1: {self.describe()}")
        horizon = np.unique(np.logspace(0, np.log10(self.rounds) + 3, 40).astype(int))
        for (name, inertia), dash in zip(self.methods.items(), ("-", "-", "--"), strict=False):
            known = self.problem, self.federation, inertia
            ink, fixed = colour_of(name.lower()), self.bound(inertia)
            best = [best_bound(*known, int(t)) for t in horizon]
            left.plot(horizon, best, dash, color=ink, label=f"{name}, best rate for each T", linewidth=2)
            left.plot(
                horizon, [fixed.at(int(t)) for t in horizon], ":", color=ink, label=f"{name}, rate {fixed.lr:.2g}"
            )
        left.axvline(self.rounds, color="#404040", linewidth=0.8)
        logarithmic(left, "rounds T", "bound on min E||grad f(u_t)||²")
        left.legend(frameon=False, fontsize=8)
        for place, inertia in enumerate(self.methods.values()):
            fixed = self.bound(inertia)
            parts = {"start, (f0 - f*) / (λ η K T)": fixed.at(self.rounds) - fixed.floor, **fixed.terms}
            bottom = 0.0
            for (cause, part), shade in zip(parts.items(), (START, *SHADES), strict=True):
                right.bar(place, part, bottom=bottom, color=shade, width=0.6, label=cause if place == 0 else None)
                bottom += part
        label(right, "", f"bound at T = {self.rounds}")
        right.set_xticks(range(len(self.methods)), list(self.methods))
        right.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        save(figure, path)

    def describe(self) -> str:
        """The problem in a line."""
        p, f = self.problem, self.federation
        return (
            f"L {p.L:.3g}, sigma {p.sigma:.3g}, G {p.G:.3g}, B {p.B:.3g}, f0 - f* {p.gap:.3g}, "
            f"C {p.gradient_bound(f):.3g}; N {f.clients}, S {f.active}, K {f.steps}"
        )

    def notes(self) -> list[str]:
        """What to know when reading the table."""
        remark = remark_1_rate(self.problem, self.federation, self.rounds)
        cap = largest_rate(self.problem, self.federation, next(iter(self.methods.values())))
        beyond = " (above the cap: T is too small for it)" if remark >= cap else ""
        lines = [
            "largest rate: where lambda reaches 0; the appendix asks for 64 K eta L B^2 + 72 eta^2 A K^2 B^2 L^2 < 1, "
            "which is over 12 times tighter than the caps in the theorem's text.",
            f"Remark 1's rate for T = {self.rounds}, which balances the terms of first order: {remark:.3g}{beyond}.",
            "The bound grows with rho and, unless C is far below G^2, with 1 - A: it shows that inertia is safe, not "
            "that it helps. docs/theory.md has what helps.",
        ]
        if self.problem.C is None:
            value = self.problem.gradient_bound(self.federation)
            lines.append(f"C assumed: {value:.3g}, the mean gradient's value at the start; give --C or measure it.")
        return lines
