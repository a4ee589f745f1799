"""The federated methods: one file per method, each a frozen dataclass of hyper-parameters."""

from fedmim.algorithms.base import Algorithm, Local, Plan, Round, Scalar, ServerState, Vectors
from fedmim.algorithms.compression import Quantise, TopK
from fedmim.algorithms.fedacg import FedACG
from fedmim.algorithms.fedadagrad import FedAdagrad
from fedmim.algorithms.fedadam import FedAdam
from fedmim.algorithms.fedavg import FedAvg
from fedmim.algorithms.fedavgm import FedAvgM
from fedmim.algorithms.fedcm import FedCM
from fedmim.algorithms.feddyn import FedDyn
from fedmim.algorithms.fedexp import FedExP
from fedmim.algorithms.fedgamma import FedGamma
from fedmim.algorithms.fedinit import FedInit
from fedmim.algorithms.fedlesam import FedLESAM
from fedmim.algorithms.fedmim import FedMIM
from fedmim.algorithms.fednova import FedNova
from fedmim.algorithms.fedprox import FedProx
from fedmim.algorithms.fedsam import FedSAM
from fedmim.algorithms.fedsmoo import FedSMOO
from fedmim.algorithms.fedspeed import FedSpeed
from fedmim.algorithms.fedyogi import FedYogi
from fedmim.algorithms.ghbm import GHBM
from fedmim.algorithms.leap import Leap
from fedmim.algorithms.mimelite import MimeLite
from fedmim.algorithms.mofedsam import MoFedSAM
from fedmim.algorithms.references import Centralised, LocalOnly
from fedmim.algorithms.scaffold import Scaffold
from fedmim.algorithms.scaffoldm import ScaffoldM
from fedmim.algorithms.sharp import Sharp
from fedmim.algorithms.wrapper import Wrapper

GROUPS: dict[str, tuple[type[Algorithm], ...]] = {
    "in FedMIM's paper": (FedAvg, FedAdam, Scaffold, FedCM, FedDyn, FedSAM, FedMIM),
    "client drift": (FedProx, FedNova, FedInit, ScaffoldM, FedSpeed),
    "momentum": (GHBM, FedACG, MimeLite),
    "sharpness-aware": (MoFedSAM, FedGamma, FedSMOO, FedLESAM),
    "server optimisers": (FedAvgM, FedYogi, FedAdagrad, FedExP),
}
"""The federated methods, grouped as in `fedmim methods`; the paper's are in the order of its Table I."""
REFERENCES: dict[str, type[Algorithm]] = {"centralised": Centralised, "local": LocalOnly}
"""The references, by their names on the command line."""
METHODS: dict[str, type[Algorithm]] = {
    **{method.__name__.lower(): method for group in GROUPS.values() for method in group},
    **REFERENCES,
}
"""All methods and references, by their names on the command line."""
PAPER = tuple(METHODS)[:7]
"""The names of the methods in FedMIM's paper."""
WRAPPERS: dict[str, type[Wrapper]] = {wrapper.suffix: wrapper for wrapper in (Leap, Sharp, TopK, Quantise)}
"""The wrappers, by their names on the command line."""

__all__ = [
    "GHBM",
    "GROUPS",
    "METHODS",
    "PAPER",
    "REFERENCES",
    "WRAPPERS",
    "Algorithm",
    "Centralised",
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
    "MimeLite",
    "MoFedSAM",
    "Plan",
    "Quantise",
    "Round",
    "Scaffold",
    "ScaffoldM",
    "Scalar",
    "ServerState",
    "Sharp",
    "TopK",
    "Vectors",
    "Wrapper",
]
