"""FedAvg in Flower's simulation: two Ray actors of one processor and one thread each, its own FedAvg strategy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache

import torch
from torch import nn

from benchmarks import stock
from benchmarks.peers import program
from benchmarks.workloads import WORKLOADS

ACTORS = 2


@cache
def resident(name: str) -> tuple[nn.Module, list[program.Batches]]:
    """An actor's network and data, made once and kept from message to message."""
    torch.set_num_threads(1)
    work = WORKLOADS[name]
    clients = [program.Batches(x, y, work.batch) for x, y in work.clients()]
    return stock.make(work.model, work.shape), clients


def main() -> None:
    """Run rounds; Flower evaluates the server's model before the first and after each, which is where it waits."""
    turns = program.turns()
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    work = program.workload()
    name, epochs = work.name, work.epochs
    server_app, client_app = ServerApp(), ClientApp()

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        module, clients = resident(name)
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        batches = clients[int(context.node_config["partition-id"])]
        program.train(module, batches, epochs)
        metrics = MetricRecord({"num-examples": len(batches.y)})
        content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    class Strict(FedAvg):
        """Flower's own, but a client that fails is an error."""

        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            replies = list(replies)
            for reply in replies:
                if reply.has_error():
                    raise RuntimeError(reply.error.reason)
            return super().aggregate_train(server_round, replies)

    def wait(server_round: int, arrays: ArrayRecord) -> None:
        if next(turns, "none left") is not None:
            raise EOFError("no more rounds are wanted")

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        torch.set_num_threads(1)
        arrays = ArrayRecord(stock.make(work.model, work.shape).state_dict())
        strategy = Strict(fraction_train=0.1, fraction_evaluate=0.0, min_train_nodes=10, min_available_nodes=100)
        strategy.start(grid, arrays, num_rounds=10**6, evaluate_fn=wait)

    run_simulation(
        server_app,
        client_app,
        num_supernodes=100,
        backend_config={"init_args": {"num_cpus": ACTORS}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    from benchmarks.peers import flower  # the actors can import what is there, and not what is in __main__

    flower.main()
