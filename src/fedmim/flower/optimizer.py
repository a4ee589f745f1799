"""FlowerOptimizer: fedmim in a Flower app with its own training function."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from flwr.app import Context, Message
from torch import nn

from fedmim.algorithms import Algorithm
from fedmim.flower.incoming import Incoming
from fedmim.flower.messages import Order
from fedmim.flower.node import state_dir
from fedmim.models.flat import averaged_buffers, flat_buffers
from fedmim.optim import Closure, LocalOptimizer
from fedmim.simulation.training import Reply


class FlowerOptimizer(LocalOptimizer):
    """A `LocalOptimizer` that reads the model and everything else from the server's message, and creates the reply.

        optimizer = FlowerOptimizer(message, context, model, FedMIM(), steps=epochs * len(loader))
        ...                                               # your own loop, with optimizer.step()
        return optimizer.reply(num_examples=len(loader.dataset), loss=mean_loss)

    Learning rate, weight decay and clipping come from the server's settings. The number of steps must be given.
    """

    def __init__(
        self,
        message: Message,
        context: Context,
        model: nn.Module,
        algorithm: Algorithm,
        *,
        steps: int,
        full_gradient: Closure | None = None,
    ) -> None:
        order = Order.of(message)
        order.check(algorithm)
        order.check_steps(steps)
        trained = [p for p in model.parameters() if p.requires_grad]
        self._incoming = Incoming.of(message, order, state_dir(context), algorithm, model, trained[0].device)
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

    def reply(
        self, *, num_examples: int, loss: float | torch.Tensor, metrics: Mapping[str, float] | None = None
    ) -> Message:
        """The message to return: the client's model, the method's other vectors, and your own metrics."""
        upload, slots = self.finish()
        loss = loss.item() if isinstance(loss, torch.Tensor) else loss
        reply = Reply(self._incoming.order.client, upload, slots, flat_buffers(self._buffers), loss, self._taken)
        return self._incoming.reply(reply, self._buffers, num_examples, metrics)
