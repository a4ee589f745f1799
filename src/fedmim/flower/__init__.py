"""The same algorithms in a federation of real machines: a Flower strategy for the server and an app for the clients.

    strategy = FlowerStrategy(FedMIM(), model, settings, clients=10)     # in the ServerApp,
    strategy.start(grid)
    app = client_app(task_for_partition, FedMIM(), settings)             # and this is the ClientApp

An existing app keeps its training function: it uses `ClientApp`, and `FlowerOptimizer` instead of its optimiser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmim.flower.app import ClientApp
    from fedmim.flower.client import client_app
    from fedmim.flower.evaluation import evaluate_fn
    from fedmim.flower.optimizer import FlowerOptimizer
    from fedmim.flower.strategy import FlowerStrategy

# Imported on first use, because `fedmim flower new` needs neither Flower nor torch.
_MODULE_OF = {
    "ClientApp": "app",
    "FlowerOptimizer": "optimizer",
    "FlowerStrategy": "strategy",
    "client_app": "client",
    "evaluate_fn": "evaluation",
}

__all__ = ["ClientApp", "FlowerOptimizer", "FlowerStrategy", "client_app", "evaluate_fn"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fedmim.flower' has no attribute {name!r}")
    try:
        return getattr(import_module(f"fedmim.flower.{_MODULE_OF[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "flwr":
            raise
        raise ModuleNotFoundError("Flower is not installed; pip install 'fedmim[flower]'", name="flwr") from error


def __dir__() -> list[str]:
    return __all__
