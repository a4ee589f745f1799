"""The server of a run: its state between rounds, and the aggregation of the clients' replies into the next state.

The round loop and the Flower strategy both use it, so they give bit-identical results and share the checkpoints.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmim.algorithms import Algorithm, Round, ServerState, Vectors
from fedmim.errors import UserError, warn_user
from fedmim.files import make_folder
from fedmim.models import FlatModel
from fedmim.simulation.checkpoint import (
    CHECKPOINT_FILE,
    CLIENTS_FOLDER,
    PREVIOUS_FILE,
    Checkpoint,
    DamageError,
    StatePlace,
    has_checkpoint,
    named_places,
)
from fedmim.simulation.client_state import ClientState, KeptVectors
from fedmim.simulation.mean import StreamingMean
from fedmim.simulation.past_models import PastModels
from fedmim.simulation.privacy import PrivateMean, check_private
from fedmim.simulation.public_point import PublicPoints
from fedmim.simulation.record import Record
from fedmim.simulation.robust import HeldReply, cut, largest_distance, trimmed_mean
from fedmim.simulation.settings import Settings
from fedmim.simulation.training import Reply

NOT_FINITE = "its reply has numbers that are not finite"
LARGEST_DISTANCE = sys.float_info.max  # a distance that is not finite cannot be clipped


class Server:
    """The server's state between two rounds. A new server is before round 1; `restore` resumes from a checkpoint.

    `facts` are further facts of the run that, like its settings, must not change. With `vectors_here`, the server
    stores the vectors that clients keep between rounds; otherwise the clients store them. `noise_seed` determines the
    noise of differential privacy. By default it is the seed of the settings, which is no secret, so that simulations
    can be repeated; a federation must pass `secrets.randbits(256)`. It is kept in the checkpoints.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        settings: Settings,
        model: FlatModel,
        folder: Path | None = None,
        *,
        facts: dict[str, Any] | None = None,
        vectors_here: bool = True,
        noise_seed: int | None = None,
    ) -> None:
        check_private(settings, model.buffers)
        self.algorithm, self.settings, self.folder = algorithm, settings, folder
        self.server_lr = check_server_lr(algorithm, settings)
        self.facts, self.vectors_here = dict(facts or {}), vectors_here
        if noise_seed is not None:
            self.facts["noise_seed"] = noise_seed
        self.clip = settings.dp_clip  # of the current round
        self.state, self.buffers = algorithm.init(model.params.clone()), model.buffers
        self.clients = self._client_state({})
        self.past = PastModels(algorithm, settings.history)
        self._named: deque[set[StatePlace]] = deque(maxlen=2)  # client states of the checkpoints in the folder
        self._saved: int | None = None  # round of the newest checkpoint

    @property
    def noise_seed(self) -> int:
        """The seed of the noise of differential privacy and of the client sampling, which must be as secret."""
        return int(self.facts.get("noise_seed", self.settings.seed))

    def fixed_clients(self, clients: int) -> int:
        """N, which must be the same in all rounds of a run with differential privacy: epsilon is computed with it."""
        if self.facts.setdefault("private_clients", clients) != clients:
            known = self.facts["private_clients"]
            raise UserError(f"clients: must stay {known} in a run with dp_noise, got {clients}; set a fixed number")
        return clients

    def restore(self) -> None:
        """Resume from the checkpoint in the folder, which must have the same method, model and settings.

        If it or one of its client states is damaged or missing, resume from the previous checkpoint, with a warning.
        Checking this reads all client states once. Nothing is written.
        """
        if self.folder is None:
            raise UserError("folder: name the folder to resume from")
        newest, previous = self.folder / CHECKPOINT_FILE, self.folder / PREVIOUS_FILE
        if not has_checkpoint(self.folder):
            raise UserError(f"{newest}: there is no checkpoint to resume from")
        try:
            self._restore(newest)
        except DamageError as damage:
            if not previous.exists():
                raise DamageError(f"{damage}; there is no older one; remove this checkpoint to start again") from damage
            try:
                self._restore(previous)
            except DamageError as older:
                raise DamageError(
                    f"{damage}; {older}; both checkpoints are damaged: restore one, or remove both to start again"
                ) from older
            warn_user(f"{damage}; resuming from the previous checkpoint, after round {self.state.round}")
            self._named.append(set(self.clients.places.items()))
            return
        self._named += [named_places(previous), set(self.clients.places.items())]
        self._saved = self.state.round

    def _restore(self, path: Path) -> None:
        """Resume from this checkpoint."""
        ours = self.state.params
        saved = Checkpoint.load(path, str(ours.device))
        params = saved.server.params
        if saved.method != repr(self.algorithm) or (params.shape, params.dtype) != (ours.shape, ours.dtype):
            raise UserError(f"{self.folder}: the checkpoint there is from another run, {saved.method}")
        fixed = self.settings.fixed()
        known = {name: value for name, value in self.facts.items() if name in saved.settings}  # older ones have fewer
        wanted = fixed | known
        earlier = Settings().fixed() | saved.settings  # a checkpoint of an earlier version has fewer settings
        if changed := [name for name, value in wanted.items() if earlier.get(name) != value]:
            raise UserError(f"{self.folder}: the run there has a different {', '.join(changed)}")
        clients = self._client_state(saved.client_rounds)
        clients.verify()
        self.facts |= {name: value for name, value in saved.settings.items() if name not in fixed}
        self.state, self.buffers, self.clients = saved.server, saved.buffers, clients
        self.past = PastModels(self.algorithm, self.settings.history, saved.heard, saved.models)
        self.clip = self.settings.dp_clip if saved.clip is None else saved.clip

    def save(self) -> None:
        """Write a checkpoint to the folder atomically, and keep the previous one."""
        if self.folder is None:
            raise UserError("folder: name a folder to save checkpoints in")
        if self._saved != self.state.round:
            self._write_checkpoint(self.folder)
            self._named.append(set(self.clients.places.items()))
            self._saved = self.state.round
        self.clients.sweep(set().union(*self._named))

    def _write_checkpoint(self, folder: Path) -> None:
        make_folder(folder)
        self.clients.flush()
        Checkpoint(
            method=repr(self.algorithm),
            settings=self.settings.fixed() | self.facts,
            server=self.state,
            buffers=self.buffers,
            client_rounds=self.clients.places,
            heard=self.past.heard,
            models=self.past.models,
            clip=self.clip,
        ).save(folder, keep=self._saved is not None)  # do not keep a damaged one

    def commit(self, closed: ClosedRound) -> None:
        """Make the state after a round the current one."""
        self.clients.commit()
        self.past.hear(closed.replied, self.state.round)
        self.state, self.buffers, self.clip = closed.state, closed.buffers, closed.clip

    def rollback(self) -> None:
        """Discard the replies of a round that did not finish."""
        self.clients.rollback()

    def _client_state(self, places: dict[int, int]) -> ClientState:
        zeros: Vectors = {name: torch.zeros_like(self.state.params) for name in self.algorithm.client_slots}
        folder = self.folder / CLIENTS_FOLDER if self.folder else None
        return ClientState(zeros, folder, places, vectors_here=self.vectors_here)


@dataclass(frozen=True)
class ClosedRound:
    """The state after a round. `Server.commit` makes it current."""

    state: ServerState
    buffers: Tensor
    replied: Sequence[int]  # clients that sent a reply, including rejected ones
    record: Record
    clip: float | None  # clip norm of the next round, with differential privacy


class Aggregation:
    """Adds up the replies of one round as they arrive, and ends the round.

    For bit-identical results the replies must arrive in a fixed order: clients with the most samples first, ties by id.
    """

    def __init__(self, server: Server, down: Vectors) -> None:
        self._server = server
        self._down = down  # the round's broadcast
        self._lr = server.settings.lr_at(server.state.round)
        self._mean = StreamingMean({"params": server.state.params, "buffers": server.buffers})
        self._points = PublicPoints(server.algorithm, server.settings, down, server.buffers, self._lr)
        self._private: PrivateMean | None = None  # used instead of the mean
        if server.clip is not None and server.settings.local_steps:
            self._private = PrivateMean(self._points.at(server.settings.local_steps), server.clip)
        self._losses = 0.0  # sum of weight * loss
        self._replied: list[int] = []
        self._held: list[HeldReply] = []  # if the settings need all uploads at once
        self.rejected: dict[int, str] = {}  # client -> why its reply does not count; complete after `close`

    @property
    def accepted(self) -> int:
        """The number of accepted replies so far; final after `close`, which may reject more."""
        return (self._private or self._mean).clients + len(self._held)

    @property
    def reference(self) -> Vectors:
        """The vectors that sums are relative to."""
        return self._mean.reference

    def take(self, reply: Reply, samples: float) -> bool:
        """Add the reply of a client with this many samples; False if it is rejected (`rejected` says why)."""
        self._replied.append(reply.client)
        server, settings = self._server, self._server.settings
        reply = as_received(server.algorithm, reply, self._down, self._lr)
        if not is_finite(reply):
            return self._reject(reply.client, NOT_FINITE)
        far = self._points.distance(everything(reply), reply.steps) if settings.measures_distance else 0.0
        if far > (settings.max_distance or LARGEST_DISTANCE):
            return self._reject(reply.client, f"its upload is {far:.3g} from its public point, above max_distance")
        weight = weight_of(settings, samples)
        if settings.holds_uploads:
            self._held.append(HeldReply.of(reply, weight, far))
        else:
            self._add(reply, weight, far)
        return True

    def take_sums(self, mean: StreamingMean, outcomes: Sequence[Outcome], sizes: Mapping[int, int]) -> None:
        """Take all replies of a round at once, which were summed elsewhere in the same order.

        The settings must not need the uploads themselves (`Settings.needs_uploads`).
        """
        mean.reference, self._mean = self._mean.reference, mean
        for each in outcomes:
            self._replied.append(each.client)
            if each.accepted:
                self._losses += weight_of(self._server.settings, sizes[each.client]) * each.loss
                self._server.clients.put(each.client, self._server.state.round, each.slots)
            else:
                self.rejected[each.client] = NOT_FINITE

    def _reject(self, client: int, reason: str) -> bool:
        self.rejected[client] = reason
        if not self._server.settings.holds_uploads:
            self._mean.skip()
        return False

    def _add(self, reply: Reply, weight: float, distance: float) -> None:
        if self._private:
            self._private.add(reply.upload, distance)
        else:
            self._mean.add(weight, everything(reply))
            self._losses += weight * reply.loss
        self._server.clients.put(reply.client, self._server.state.round, reply.slots)

    def close(self, total_weight: float, clients: Sequence[int], bytes_up: int, bytes_down: int) -> ClosedRound:
        """End the round: compute the next state and the record.

        With fewer accepted replies than `min_replies` the state is unchanged, except with differential privacy, where
        every round adds noise. `total_weight` is the weight of all N clients (N itself if weights are equal); `clients`
        are those that were asked to take part.
        """
        uploads = self._add_held()
        server, mean, settings = self._server, self._mean, self._server.settings
        t, state, buffers, clip, epsilon = server.state.round, server.state, server.buffers, server.clip, None
        if self._private:
            released = self._private.release(settings, server.fixed_clients(int(total_weight)), server.noise_seed, t)
            means, share, clip, epsilon = released.means, released.share, released.clip, released.epsilon
            state = server.algorithm.update(state, means, Round(t, self._lr, server.server_lr, share))
        elif mean.clients >= settings.min_replies:
            means = mean.mean() if not uploads else trimmed_mean(uploads, cut(settings, len(uploads)))
            buffers = means.pop("buffers")
            facts = Round(t, self._lr, server.server_lr, mean.weight / total_weight)
            state = server.algorithm.update(state, means, facts)
        else:
            server.clients.rollback()
        record = Record(
            round=t + 1,
            test_accuracy=None,
            test_loss=None,
            train_loss=self._losses / mean.weight if mean.clients else None,
            consistency=mean.consistency() if mean.clients else None,
            lr=self._lr,
            clients=tuple(clients),
            bytes_up=bytes_up,
            bytes_down=bytes_down,
            refused=len(self._replied) - self.accepted,
            seconds=0.0,
            epsilon=epsilon,
        )
        return ClosedRound(replace(state, round=t + 1), buffers, sorted(self._replied), record, clip)

    def _add_held(self) -> list[Vectors]:
        """Add the held replies, except those too far away. Returns their uploads if they are not to be averaged."""
        settings, held, uploads = self._server.settings, self._held, list[Vectors]()
        ratio, limit = settings.max_distance_ratio, math.inf
        if ratio is not None and held:
            limit = largest_distance([each.distance for each in held], ratio)
        self._held = []
        for each in held:
            if each.distance > limit:
                why = f"its upload is {each.distance:.3g} from its public point, above {ratio:g} times the median"
                self._reject(each.reply.client, why)
                continue
            self._add(each.reply, each.weight, each.distance)
            if settings.aggregation != "mean":
                uploads.append(everything(each.reply))
        return uploads


@dataclass(frozen=True)
class Outcome:
    """A client's reply without its upload, which was summed elsewhere."""

    client: int
    accepted: bool
    loss: float
    bytes_up: int
    slots: KeptVectors


def as_received(algorithm: Algorithm, reply: Reply, down: Vectors, lr: float) -> Reply:
    """The reply with the upload as the server uses it."""
    received = algorithm.receive(reply.upload, down, lr, reply.steps)
    return reply if received is reply.upload else replace(reply, upload=received)


def weight_of(settings: Settings, samples: float) -> float:
    """The weight of a client with this many samples in the mean."""
    return float(samples) if settings.weighting == "samples" else 1.0


def everything(reply: Reply) -> Vectors:
    """All vectors of a reply that are averaged."""
    return {**reply.upload, "buffers": reply.buffers}


def is_finite(reply: Reply) -> bool:
    """Whether all numbers of a reply are finite."""
    vectors = [*reply.upload.values(), *reply.slots.values(), reply.buffers]
    if not (reply.finite and math.isfinite(reply.loss)):
        return False
    # A finite sum proves it in one cheap pass. A sum that is not finite may have overflowed, so check each element.
    return all(math.isfinite(v.sum().item()) or bool(v.isfinite().all()) for v in vectors)


def check_server_lr(algorithm: Algorithm, settings: Settings) -> float:
    """The server learning rate from the settings, or the method's default."""
    own = algorithm.default_server_lr
    if settings.server_lr is None or settings.server_lr == own:
        return own
    if not algorithm.any_server_lr:
        raise UserError(f"server_lr: must be {own:g} for {algorithm.title}, got {settings.server_lr}")
    return settings.server_lr
