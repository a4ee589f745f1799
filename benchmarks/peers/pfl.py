"""FedAvg in pfl: its SimulatedBackend on two processes of one thread, which sum their updates by torch.distributed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks import stock
from benchmarks.peers import program

PROCESSES = 2


class Network(nn.Module):
    """The network with the two methods that pfl asks for."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.criterion = nn.CrossEntropyLoss()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a minibatch."""
        loss: Tensor = self.criterion(self.module(x), y)
        return loss

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, object]:
        """What pfl asks of the very first round, which is not timed."""
        from pfl.metrics import Weighted

        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


def handed_on(turns: Iterator[None], others: list[subprocess.Popen[str]]) -> Iterator[None]:
    """The turns, which the other processes get too."""
    for _ in turns:
        for other in others:
            assert other.stdin is not None
            other.stdin.write("go\n")
            other.stdin.flush()
        yield
    for other in others:
        other.communicate()


def main() -> None:
    """Be the first process and start the others, or be one of them."""
    turns = program.turns()
    if "PFL_WORKER_RANK" not in os.environ:
        os.environ["PFL_WORKER_ADDRESSES"] = ",".join(f"127.0.0.1:{program.free_port()}" for _ in range(PROCESSES))
        turns = handed_on(turns, [start(rank) for rank in range(1, PROCESSES)])
        os.environ["PFL_WORKER_RANK"] = "0"
    run(turns)


def start(rank: int) -> subprocess.Popen[str]:
    """This program again, as another of the processes."""
    command = [sys.executable, "-m", "benchmarks.peers.pfl", *sys.argv[1:]]
    variables = os.environ | {"PFL_WORKER_RANK": str(rank)}
    return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def run(turns: Iterator[None]) -> None:
    """A process's part of each round."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    torch.set_num_threads(1)
    work = program.workload()

    class Turns(TrainingProcessCallback):
        """Waits for the next turn before each round."""

        def on_train_begin(self, *, model: object) -> Metrics:
            next(turns)
            return Metrics()

        def after_central_iteration(
            self, aggregate_metrics: object, model: object, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            return next(turns, "none left") is not None, Metrics()

    module = Network(stock.make(work.model, work.shape))
    model = PyTorchModel(
        module,
        partial(torch.optim.SGD, weight_decay=program.WEIGHT_DECAY),
        torch.optim.SGD(module.parameters(), lr=1.0),
    )
    clients = dict(enumerate(work.clients()))
    data = FederatedDataset.from_slices(clients, get_user_sampler("minimize_reuse", list(clients)))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10**6, evaluation_frequency=10**6, train_cohort_size=10, val_cohort_size=None
        ),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(local_batch_size=work.batch, local_num_epochs=work.epochs, local_learning_rate=program.LR),
        NNEvalHyperParams(local_batch_size=work.batch),
        [Turns()],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
