"""Time and memory of the Flower server: replies of ResNet-18 (45 MB each), aggregated by Flower's FedAvg and by fedmim.

python -m benchmarks.flower ours 100      # one strategy and number of clients: seconds per client, peak in MB

The grid is made up: it creates a reply when it is pulled, so that only what the strategy keeps is in memory. Flower's
strategy gets all replies at once, as from its own grid. Each measurement has its own process; the two strategies take
turns.
"""

from __future__ import annotations

import logging
import resource
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable

import torch

REPEATS = 5


def measure(which: str, clients: int) -> tuple[float, float]:
    """Seconds of aggregation per client, without creating the replies, and the growth of the peak in MB."""
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.task_identity import TaskIdentity

    import fedmim
    from fedmim.flower import FlowerStrategy
    from fedmim.models.networks import make_model

    class Made(Grid):
        """Nodes whose replies are the model that they were sent."""

        def __init__(self) -> None:
            self.seconds, self.sent = 0.0, dict[str, Message]()

        def set_run(self, run: object) -> None: ...
        def create_message(self, *args: object) -> Message:
            raise NotImplementedError

        @property
        def run(self) -> object:
            return None

        def get_node_ids(self) -> Iterable[int]:
            return range(1, clients + 1)

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            ids = []
            for message in messages:
                message.metadata.__dict__["_message_id"] = uuid.uuid4().hex
                self.sent[message.metadata.message_id] = message
                ids.append(message.metadata.message_id)
            return ids

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            begin = time.perf_counter()
            replies = [self._reply(self.sent.pop(each)) for each in message_ids]
            self.seconds += time.perf_counter() - begin
            return replies

        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            return self.pull_messages(self.push_messages(list(messages)))

        def _reply(self, message: Message) -> Message:
            state = message.content["arrays"].to_torch_state_dict()
            metrics = MetricRecord({"num-examples": 10, "steps": 1, "train_loss": 1.0})
            content = RecordDict({"arrays": ArrayRecord(state), "metrics": metrics})
            return Message(content, reply_to=message)

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    model, grid = make_model("resnet18", (3, 32, 32), 10), Made()
    strategy = (
        FlowerStrategy(fedmim.FedAvg(), model, fraction_evaluate=0.0, min_available_nodes=1, min_train_nodes=1)
        if which == "ours"
        else FedAvg(fraction_evaluate=0.0, min_available_nodes=1, min_train_nodes=1)
    )
    spent: list[float] = []
    aggregate = strategy.aggregate_train

    def timed(*args: object) -> object:
        made, begin = grid.seconds, time.perf_counter()
        result = aggregate(*args)
        spent.append(time.perf_counter() - begin - (grid.seconds - made))
        return result

    strategy.aggregate_train = timed
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rounds = 1 if clients > 20 else REPEATS
    arrays = ArrayRecord(model.state_dict())
    strategy.start(grid, arrays, num_rounds=rounds, train_config=ConfigRecord({"lr": 0.1}))
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return statistics.median(spent) / clients, peak


def table() -> str:
    """Both strategies, for several numbers of clients, as Markdown."""
    head = "| clients | Flower's FedAvg, ms each | fedmim, ms each | ratio | Flower, peak MB | fedmim, peak MB |"
    lines = [head, "|---|---|---|---|---|---|"]
    for clients in (4, 10, 100):
        found: dict[str, list[tuple[float, float]]] = {"flower": [], "ours": []}
        for _ in range(3 if clients < 100 else 1):
            for which, values in found.items():
                command = [sys.executable, "-m", "benchmarks.flower", which, str(clients)]
                out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.split()
                values.append((float(out[0]), float(out[1])))
        (theirs, their_peak), (ours, our_peak) = (
            (statistics.median(s for s, _ in each), max(p for _, p in each)) for each in found.values()
        )
        lines.append(
            f"| {clients} | {1e3 * theirs:.1f} | {1e3 * ours:.1f} | {ours / theirs:.2f} | {their_peak:.0f} "
            f"| {our_peak:.0f} |"
        )
    note = (
        "fedmim sums in float64 and measures the client drift. It adds each reply as it arrives, so one is left when "
        "the last has arrived; Flower's strategy then begins."
    )
    return "\n".join([*lines, "", note, ""])


if __name__ == "__main__":
    print(*measure(sys.argv[1], int(sys.argv[2])))
