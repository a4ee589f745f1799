"""Compressed uploads for any method: a client sends a compressed change of its model, x_i - x_t, instead of all of it.

The model that arrives at the server, x_t + C(x_i - x_t), takes the place of x_i for everything that follows, also for
what the client keeps. So client and server have the same x_i, as SCAFFOLD and FedDyn need it. Other vectors that a
method uploads are sent whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedmim.algorithms.base import Algorithm, Local, Vectors, require
from fedmim.algorithms.wrapper import Wrapper

if TYPE_CHECKING:
    from torch import Tensor

INDEX_BYTES = 4


@dataclass(frozen=True)
class Compression(Wrapper):
    """A method whose uploads are compressed."""

    def _check_inner(self) -> None:
        self.check_federated()
        title = self.inner.title
        require(not is_compressed(self.inner), f"{self.suffix}: {title} is already compressed")
        own = f"{self.suffix}: {title} uploads something else than its model; it cannot be used"
        require(self.inner.uploads_model, own)

    def _finish(self, arrived: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """As the inner method, with the model that arrives at the server."""
        upload, kept = self.inner.finish(arrived, local)
        same = upload["params"] is arrived
        require(same, f"{self.inner.title}: uploads something else than its model, so uploads_model must be False")
        return upload, kept

    def upload_bytes(self, upload: Vectors) -> int:
        """The bytes of the compressed change, and of the inner method's other vectors."""
        model = upload["params"]
        return self.inner.upload_bytes(upload) - model.nbytes + self.model_bytes(model)

    def model_bytes(self, model: Tensor) -> int:
        """The bytes of the compressed change of a model (d,)."""
        raise NotImplementedError


@dataclass(frozen=True)
class TopK(Compression):
    """The inner method, with uploads of only the largest entries of the change, and error feedback.

        client   c = x_i - x_t + e_i;   sends the k = ceil(fraction d) entries of c that are largest in magnitude
                 e_i <- c - (what it sends)
        server   as the inner method, with x_t + (what arrives) instead of x_i

    Each entry takes the bytes of its value and 4 of its index; from where this is no less, the whole model is sent.

    Stich et al. 2018, "Sparsified SGD with Memory", NeurIPS; Karimireddy et al. 2019, "Error Feedback Fixes SignSGD and
    other Gradient Compression Schemes", ICML.
    """

    suffix: ClassVar[str] = "topk"

    fraction: float = 0.01
    """The fraction of the entries that is sent."""

    def __post_init__(self) -> None:
        require(0 < self.fraction <= 1, f"fraction: must be above 0 and at most 1, got {self.fraction}")
        self._check_inner()

    @property
    def client_slots(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of the inner method, and e_i."""
        return (*self.inner.client_slots, "residual")

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """Send the largest entries; keep the rest."""
        import torch

        size, x = w.shape[-1], local.down["params"]
        if (count := self._count(size)) == size:
            upload, kept = self._finish(w, local)
            return upload, {**kept, "residual": torch.zeros_like(w)}
        change = w - x + local.slots["residual"]
        index = change.abs().topk(count, dim=-1).indices
        sent = torch.zeros_like(change).scatter_(-1, index, change.gather(-1, index))
        upload, kept = self._finish(x + sent, local)
        return upload, {**kept, "residual": change - sent}

    def model_bytes(self, model: Tensor) -> int:
        """Values and indices."""
        entries = self._count(len(model)) * (model.element_size() + INDEX_BYTES)
        return min(entries, model.nbytes)

    def _count(self, size: int) -> int:
        return min(size, max(1, math.ceil(self.fraction * size)))


@dataclass(frozen=True)
class Quantise(Compression):
    """The inner method, with uploads in which each entry of the change has few bits, rounded at random without bias.

        client   v = x_i - x_t, in buckets of b = 512 entries;   s = 2^(bits - 1) - 1,   u uniform in [0, 1)
                 sends ||v|| and sign(v_j) floor(s |v_j| / ||v|| + u_j) for each entry j
        server   as the inner method, with x_t + ||v|| sign(v_j) (that number) / s instead of x_i

    The mean over u is v, and the mean squared error at most min(b / s^2, sqrt(b) / s) ||v||^2.

    Each entry takes `bits` bits, and each bucket the bytes of one number more; the paper's entropy coding is left out.

    Alistarh et al. 2017, "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NeurIPS, Lemma
    3.1.
    """

    suffix: ClassVar[str] = "quantise"

    bits: int = 8
    """Bits per entry, with its sign: 2 to 16."""
    bucket: int = 512
    """The number of entries that share a norm."""

    def __post_init__(self) -> None:
        require(2 <= self.bits <= 16, f"bits: must be between 2 and 16, got {self.bits}")
        require(self.bucket >= 1, f"bucket: must be at least 1, got {self.bucket}")
        self._check_inner()

    def finish(self, w: Tensor, local: Local) -> tuple[Vectors, Vectors]:
        """Send the rounded change."""
        x = local.down["params"]
        return self._finish(x + self.rounded(w - x, local.random_like(w)), local)

    def rounded(self, change: Tensor, random: Tensor) -> Tensor:
        """The change (d,) or (S, d) as it arrives; `random` has a number in [0, 1) for each entry."""
        from torch.nn.functional import pad

        size, levels = change.shape[-1], 2 ** (self.bits - 1) - 1
        bucket = min(self.bucket, size)
        parts = pad(change, (0, -size % bucket)).unflatten(-1, (-1, bucket))
        norms = parts.norm(dim=-1, keepdim=True).clamp_min(1e-30)
        chance = pad(random, (0, -size % bucket)).view_as(parts)
        whole = (parts.abs() * (levels / norms) + chance).floor().clamp_max(levels)
        arrived: Tensor = parts.sign() * whole * (norms / levels)
        return arrived.flatten(-2)[..., :size]

    def model_bytes(self, model: Tensor) -> int:
        """Entries and norms."""
        size = len(model)
        return math.ceil(size * self.bits / 8) + math.ceil(size / self.bucket) * model.element_size()


def is_compressed(algorithm: Algorithm) -> bool:
    """Whether the uploads of a method, or of one that it wraps, are compressed."""
    return isinstance(algorithm, Compression) or (isinstance(algorithm, Wrapper) and is_compressed(algorithm.inner))
