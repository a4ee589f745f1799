"""`fedmim advise`: which method to use, from the results of the nearest experiments."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedmim.errors import UserError
from fedmim.flags import parse
from fedmim.report.run_commands import flags_of
from fedmim.report.style import colour_of
from fedmim.reproduction.advice import TESTED, MethodAdvice, Wanted, advise, costs_of
from fedmim.reproduction.evidence import Evidence, load_evidence
from fedmim.simulation.settings import at_least

ABOUT_ADVISE = """Which method to use: the results of the experiments that are nearest to your federation, with the
settings that a search found there. docs/choosing.md explains the choice."""
SHOWN = 5  # methods per setting


@dataclass(frozen=True)
class AdviseOptions:
    """The federation."""

    clients: int = 100
    """N, the number of clients."""
    participation: float = 0.1
    """The fraction of the clients that train per round."""
    split: str = "dirichlet:0.1"
    """How the clients' labels differ: iid, or dirichlet:NUMBER; 0.1 is strongly heterogeneous, 10 nearly IID."""
    local_steps: int = 20
    """K, the mean number of minibatch steps of a client per round."""
    stateless: bool = False
    """Clients keep nothing between rounds, for example because each trains only once."""
    gradients: int = 2
    """The largest number of gradients per local step; 1 excludes sharpness-aware methods."""
    vectors: int = 9
    """The largest number of vectors of the model's size that a client receives and sends per round; FedAvg needs 2, one
    down and one up."""

    def __post_init__(self) -> None:
        for name in ("clients", "local_steps", "gradients", "vectors"):
            at_least(name, getattr(self, name), 1)
        if not 0 < self.participation <= 1:
            raise UserError(f"participation: must be above 0 and at most 1, got {self.participation}")


def advise_command(argv: list[str]) -> None:
    """Print the nearest results and the method that does best there."""
    values = parse("fedmim advise", ABOUT_ADVISE, argv, {"advise": AdviseOptions()}).values["advise"]
    asked = AdviseOptions(**values)
    wanted = Wanted(
        asked.participation,
        asked.split,
        asked.local_steps,
        asked.clients,
        asked.stateless,
        asked.gradients,
        asked.vectors,
    )
    show_advice(advise(wanted, load_evidence()), asked.clients, Console())


def show_advice(advice: MethodAdvice, clients: int, console: Console) -> None:
    """Print the advice and its evidence."""
    method, tested = advice.method, len(advice.settings)
    for distance, results in advice.settings:
        console.print(_setting_title(distance, results[0]), style="italic", highlight=False)
        console.print(_setting_table(results, method))
        console.print()
    console.print(
        "K: local steps per client and round. state: clients keep vectors. bytes: down and up per client and round, "
        "d is the model. Compared are the methods that are in all of these settings; near settings weigh more.",
        style="dim",
        highlight=False,
    )
    own = advice.of(method)
    console.print(Text.assemble("use ", (method, f"bold {colour_of(method)}")), highlight=False)
    console.print(f"  {run_command(own)}", highlight=False, soft_wrap=True)
    places = f"these {tested} settings" if tested > 1 else "this setting"
    console.print(f"  {advice.gaps[method]:.1f} points behind the best on average over {places}", highlight=False)
    if others := [each for each in advice.level if each != method]:
        console.print(f"  level with it, but not cheaper: {', '.join(others)}", highlight=False)
    first = advice.settings[0][1][0]
    if first.method not in advice.level:
        console.print(f"best in the nearest setting: {first.method} with {_settings(first)}", highlight=False)
    if _values(own).get("leap.ahead", "0.0") != "0.0":
        console.print("compare it with leap.ahead=0: how far to look ahead depends on the task", highlight=False)
    if clients != TESTED:
        console.print(f"note: all experiments have {TESTED} clients; nothing was measured with {clients}", style="dim")
    console.print("tune it on your data: " + f"fedmim tune {method} --data ...", style="dim", highlight=False)


def _setting_title(distance: float, first: Evidence) -> str:
    return (
        f"{first.data}, {first.split}, {100 * first.participation:g} % per round, K = {first.steps} "
        f"(distance {distance:.1f}; fedmim reproduce {first.experiment} --scale {first.scale})"
    )


def _setting_table(results: tuple[Evidence, ...], method: str) -> Table:
    """The best results in a setting, and in any case those of the method to use and of FedAvg."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("method", "accuracy", "seeds", "state", "bytes", "settings"):
        table.add_column(heading, justify="left" if heading in ("method", "settings") else "right")
    shown = [each for place, each in enumerate(results) if place < SHOWN or each.method in (method, "fedavg")]
    for each in shown:
        costs = costs_of(each.method)
        accuracy = f"{each.accuracy:.1f} ± {each.deviation:.1f}"
        words = (accuracy, str(each.seeds), "yes" if costs.state else "-", f"{costs.vectors}d", _settings(each))
        table.add_row(Text(each.method, style=colour_of(each.method)), *words)
    return table


def run_command(each: Evidence) -> str:
    """The command that trains a method with these settings."""
    values = {name: value.strip("(,)").replace(" ", "") for name, value in _values(each).items()}
    return shlex.join(["fedmim", "run", *flags_of({"method": each.method, "lr": f"{each.lr:g}", **values})])


def _values(each: Evidence) -> dict[str, str]:
    return dict(item.split("=") for item in each.hyper_parameters.split("; ") if item)


def _settings(each: Evidence) -> str:
    return "; ".join([f"lr={each.lr:g}", *([each.hyper_parameters] if each.hyper_parameters else [])])
