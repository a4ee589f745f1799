"""FedMIM (Federated Multi-step Inertial Momentum) and its baselines: federated learning on heterogeneous data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from fedmim.algorithms import (
        GHBM,
        Algorithm,
        Centralised,
        FedACG,
        FedAdagrad,
        FedAdam,
        FedAvg,
        FedAvgM,
        FedCM,
        FedDyn,
        FedExP,
        FedGamma,
        FedInit,
        FedLESAM,
        FedMIM,
        FedNova,
        FedProx,
        FedSAM,
        FedSMOO,
        FedSpeed,
        FedYogi,
        Leap,
        Local,
        LocalOnly,
        MimeLite,
        MoFedSAM,
        Plan,
        Quantise,
        Round,
        Scaffold,
        ScaffoldM,
        ServerState,
        Sharp,
        TopK,
        Vectors,
        Wrapper,
    )
    from fedmim.comparing import ComparisonResults, compare
    from fedmim.optim import LocalOptimizer
    from fedmim.results.frames import load_clients, load_runs, load_summary
    from fedmim.simulation.callbacks import Callback, RunInfo
    from fedmim.simulation.loop import Result, Rounds, rounds, simulate
    from fedmim.simulation.record import Record
    from fedmim.simulation.settings import Execution, Settings
    from fedmim.simulation.task import Task
    from fedmim.tuning import TuneResults, tune

# The module of each public name. Names are imported on first use, because importing torch takes seconds.
_MODULES = {
    "algorithms": (
        "GHBM Algorithm Centralised FedACG FedAdagrad FedAdam FedAvg FedAvgM FedCM FedDyn FedExP FedGamma FedInit "
        "FedLESAM FedMIM FedNova FedProx FedSAM FedSMOO FedSpeed FedYogi Leap Local LocalOnly MimeLite MoFedSAM "
        "Plan Quantise Round Scaffold ScaffoldM ServerState Sharp TopK Vectors Wrapper"
    ),
    "comparing": "ComparisonResults compare",
    "simulation.callbacks": "Callback RunInfo",
    "optim": "LocalOptimizer",
    "results.frames": "load_clients load_runs load_summary",
    "simulation.loop": "Result Rounds rounds simulate",
    "simulation.record": "Record",
    "simulation.settings": "Execution Settings",
    "simulation.task": "Task",
    "tuning": "TuneResults tune",
}
_MODULE_OF = {name: f"fedmim.{module}" for module, names in _MODULES.items() for name in names.split()}
_PACKAGES = [
    "algorithms",
    "commands",
    "data",
    "experiments",
    "flower",
    "models",
    "report",
    "reproduction",
    "results",
    "simulation",
    "theory",
]

__all__ = [
    "GHBM",
    "Algorithm",
    "Callback",
    "Centralised",
    "ComparisonResults",
    "Execution",
    "FedACG",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedDyn",
    "FedExP",
    "FedGamma",
    "FedInit",
    "FedLESAM",
    "FedMIM",
    "FedNova",
    "FedProx",
    "FedSAM",
    "FedSMOO",
    "FedSpeed",
    "FedYogi",
    "Leap",
    "Local",
    "LocalOnly",
    "LocalOptimizer",
    "MimeLite",
    "MoFedSAM",
    "Plan",
    "Quantise",
    "Record",
    "Result",
    "Round",
    "Rounds",
    "RunInfo",
    "Scaffold",
    "ScaffoldM",
    "ServerState",
    "Settings",
    "Sharp",
    "Task",
    "TopK",
    "TuneResults",
    "Vectors",
    "Wrapper",
    "__version__",
    "compare",
    "load_clients",
    "load_runs",
    "load_summary",
    "rounds",
    "simulate",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"fedmim.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fedmim' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES]
