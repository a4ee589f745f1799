"""All experiments, by the name of their figure."""

from __future__ import annotations

from fedmim.theory.experiments import Experiment
from fedmim.theory.experiments.bound import BoundExperiment
from fedmim.theory.experiments.heterogeneity import HeterogeneityExperiment
from fedmim.theory.experiments.polyak import PolyakExperiment
from fedmim.theory.experiments.resting import RestingExperiment
from fedmim.theory.experiments.speedup import SpeedupExperiment

EXPERIMENTS: dict[str, Experiment] = {
    "bound": BoundExperiment(),
    "speedup": SpeedupExperiment(),
    "polyak": PolyakExperiment(),
    "heterogeneity": HeterogeneityExperiment(),
    "quadratics": RestingExperiment(),
}
