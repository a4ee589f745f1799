"""The look of each method, the same on the terminal, in every picture and on the page.

One colour a method; variants of a method, and those with others around it (feddyn+leap), share its hue and differ in
shade and dashes. COLOURS stay apart for readers without red, green or blue cones, and show on white and on dark paper
alike; there are not so many colours for all methods, so the successors share those of OTHERS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fedmim.algorithms import METHODS
from fedmim.experiments.methods import split_name

# From Okabe and Ito's palette, moved apart under simulated colour blindness; FedMIM has the strongest.
COLOURS = {
    "fedavg": "#717682",
    "fedadam": "#e69f00",
    "scaffold": "#0c9d59",
    "fedcm": "#0d72bf",
    "feddyn": "#c88db6",
    "fedsam": "#56b4e9",
    "fedmim": "#d55e00",
    "fedprox": "#5a48f0",
    "fedavgm": "#9c2458",
}
OTHERS = ("#8a5a2b", "#b0a000", "#00a8a8", "#e05080", "#7a9a3a", "#a070e0")  # all other methods
DASHES = ("-", "--", "-.", ":")  # as matplotlib writes them
DASH_NAMES = dict(zip(DASHES, ("solid", "dash", "dashdot", "dot"), strict=True))  # as plotly calls them
SHADES = (0.0, 0.4, -0.2)  # towards white, towards black


@dataclass(frozen=True)
class Style:
    """How one line of a comparison is drawn."""

    colour: str  # "#rrggbb"
    dash: str  # one of DASHES
    strong: bool  # drawn wider and above the others

    @property
    def dash_name(self) -> str:
        """The dash by its name."""
        return DASH_NAMES[self.dash]


def colour_of(method: str) -> str:
    """A method's colour."""
    base = split_name(method)[0]
    if base in COLOURS:
        return COLOURS[base]
    others = [name for name in METHODS if name not in COLOURS]
    number = others.index(base) if base in others else sum(map(ord, base.rpartition(":")[2]))
    return OTHERS[number % len(OTHERS)]


def styles(methods: Iterable[str]) -> list[Style]:
    """A style for each line by its method: the first of a colour is pure and solid, its twelve variants all differ."""
    seen: dict[str, int] = {}
    lines = []
    for method in methods:
        colour = colour_of(method)
        number = seen[colour] = seen.get(colour, -1) + 1
        dash, lighter = DASHES[number % len(DASHES)], SHADES[number % len(SHADES)]
        lines.append(Style(shade(colour, lighter), dash, method == "fedmim"))
    return lines


def label_styles(methods: Mapping[str, str]) -> dict[str, Style]:
    """A style for each label, whose methods these are."""
    return dict(zip(methods, styles(methods.values()), strict=True))


def shade(colour: str, amount: float) -> str:
    """A colour mixed with white (amount above 0) or black (below)."""
    end, part = (255, amount) if amount > 0 else (0, -amount)
    channels = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(channel + (end - channel) * part):02x}" for channel in channels)
