"""FlowerOptimizer: fedmim in a Flower app with its own training function."""

from __future__ import annotations

from flwr.app import Message, MetricRecord
from torch import nn

from fedmim.algorithms import Algorithm
from fedmim.errors import UserError
from fedmim.flower.app import CURRENT
from fedmim.flower.incoming import Incoming
from fedmim.flower.messages import Order, count
from fedmim.flower.node import state_dir
from fedmim.models.flat import averaged_buffers, flat_buffers
from fedmim.optim import Closure, LocalOptimizer
from fedmim.simulation.training import Reply


class FlowerOptimizer(LocalOptimizer):
    """A `LocalOptimizer` for the training function of a `fedmim.flower.ClientApp`, in place of `torch.optim.SGD`.

        optimizer = FlowerOptimizer(model, steps=epochs * len(loader))
        ...                                  # the loop and the reply stay as they are

    The constructor loads the model that the server sent. Method, learning rate, weight decay and clipping are the
    server's; `algorithm` is needed for a method of your own, and checked against the server's. The number of steps must
    be known in advance, because methods divide by it. Only the method's own momentum is used.
    """

    def __init__(
        self,
        model: nn.Module,
        algorithm: Algorithm | None = None,
        *,
        steps: int,
        full_gradient: Closure | None = None,
    ) -> None:
        current = CURRENT.get()
        if current is None:
            raise UserError(
                "FlowerOptimizer: create the app with `from fedmim.flower import ClientApp`, and the optimizer in its "
                "training function"
            )
        order = Order.of(current.message)
        algorithm = algorithm or order.algorithm()
        order.check(algorithm)
        order.check_steps(steps)
        trained = [p for p in model.parameters() if p.requires_grad]
        self._incoming = Incoming.of(
            current.message, order, state_dir(current.context), algorithm, model, trained[0].device
        )
        self._buffers = averaged_buffers(model)
        settings = order.agreed
        super().__init__(
            trained,
            algorithm,
            self._incoming.down,
            lr=order.lr,
            steps=steps,
            slots=None if order.first else self._incoming.slots,
            weight_decay=settings["weight_decay"],
            clip_norm=settings["clip_norm"],
            full_gradient=full_gradient,
        )
        for buffer, sent in zip(self._buffers, self._incoming.buffers, strict=True):
            buffer.copy_(sent)
        current.optimizer = self

    def complete(self, reply: Message) -> Message:
        """The training function's reply, with what the method uploads in place of its arrays."""
        records = list(reply.content.metric_records.values())
        if len(records) != 1 or "num-examples" not in records[0]:
            raise UserError('train: the reply must have one MetricRecord with "num-examples", as for Flower\'s FedAvg')
        metrics = MetricRecord({**records[0]})
        upload, slots = self.finish()
        loss = metrics.get("train_loss", metrics.get("loss", 0.0))
        if not isinstance(loss, int | float):
            raise UserError(f"train_loss: must be a number, got {loss!r}")
        finished = Reply(self._incoming.order.client, upload, slots, flat_buffers(self._buffers), loss, self._taken)
        return self._incoming.reply(finished, self._buffers, count(metrics, "num-examples"), metrics)
