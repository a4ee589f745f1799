"""The mathematics: one file per method, each a frozen set of hyper-parameters with the same few functions."""

from fedmim.algorithms.base import Algorithm, Local, Plan, Round, Scalar, ServerState, Vectors
from fedmim.algorithms.fedadam import FedAdam
from fedmim.algorithms.fedavg import FedAvg
from fedmim.algorithms.fedavgm import FedAvgM
from fedmim.algorithms.fedcm import FedCM
from fedmim.algorithms.feddyn import FedDyn
from fedmim.algorithms.fedmim import FedMIM
from fedmim.algorithms.fedprox import FedProx
from fedmim.algorithms.fedsam import FedSAM
from fedmim.algorithms.scaffold import Scaffold

# The seven methods of the paper, in the order of its Table I, then two that everyone asks for.
METHODS: dict[str, type[Algorithm]] = {
    method.__name__.lower(): method
    for method in (FedAvg, FedAdam, Scaffold, FedCM, FedDyn, FedSAM, FedMIM, FedProx, FedAvgM)
}
PAPER = tuple(METHODS)[:7]

__all__ = [
    "METHODS",
    "PAPER",
    "Algorithm",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedDyn",
    "FedMIM",
    "FedProx",
    "FedSAM",
    "Local",
    "Plan",
    "Round",
    "Scaffold",
    "Scalar",
    "ServerState",
    "Vectors",
]
