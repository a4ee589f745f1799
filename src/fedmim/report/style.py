"""The colour of each method, the same on the terminal and in every picture, told apart by colour-blind readers."""

from __future__ import annotations

# Okabe and Ito's palette (its yellow darkened, for white paper), FedMIM in the strongest, and a violet.
COLOURS = {
    "fedavg": "#7f7f7f",
    "fedadam": "#e69f00",
    "scaffold": "#009e73",
    "fedcm": "#0072b2",
    "feddyn": "#cc79a7",
    "fedsam": "#56b4e9",
    "fedmim": "#d55e00",
    "fedprox": "#b5a800",
    "fedavgm": "#5d3a9b",
}
OTHERS = ("#000000", "#8c564b", "#17becf", "#6b6ecf")  # users' own methods
DASHES = ("-", "--", "-.", ":")  # variants of one method


def colour_of(method: str) -> str:
    """A method's colour."""
    return COLOURS.get(method) or OTHERS[sum(map(ord, method)) % len(OTHERS)]
