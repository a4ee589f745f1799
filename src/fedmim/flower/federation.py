"""Which node has which client's data. Node ids may be new in every run; partitions stay the same."""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedmim.errors import UserError
from fedmim.flower.delivery import pull, send
from fedmim.flower.messages import CONFIG, METRICS, count
from fedmim.simulation.randomness import key, sample_clients

log = logging.getLogger("flwr")
PartitionKeys: TypeAlias = Literal["any", "first"] | Mapping[int, Path | str]
PAUSE = 0.1  # seconds between two checks for connected nodes
PATIENCE = 30.0  # seconds to wait for a node's answer once; a node that never answers does not delay later rounds
NO_ANSWER = "No query function registered"  # Flower's error for a ClientApp without a query function


class Federation:
    """The nodes of a federation by client, 0, 1, ...

    With a number of clients, each node is asked once for its partition. A partition belongs to the first connected node
    that claims it. Without one, nodes are not asked, and are numbered in the order of their ids as they connect.
    """

    def __init__(self, clients: int | None, wait: float, partition_keys: PartitionKeys = "any") -> None:
        if partition_keys != "any" and clients is None:
            raise UserError("partition_keys: name the number of partitions, clients")
        if isinstance(partition_keys, str) and partition_keys not in ("any", "first"):
            raise UserError(f"partition_keys: must be any, first, or a file for each partition, got {partition_keys!r}")
        self.wait = wait  # seconds
        self.fixed = clients  # None: the connected nodes
        self.keys: dict[str, str] = {}  # partition -> fingerprint of the key that may have it
        self._keyed = partition_keys != "any"
        self._listed = {} if isinstance(partition_keys, str) else read_keys(partition_keys)
        self.samples: dict[int, int] = {}  # client -> its number of samples, as reported
        self.weights: dict[int, float] = {}  # client -> its weight in the mean, as in its last reply
        self.steps: dict[int, int] = {}  # client -> its number of local steps, as reported
        self._claims: dict[int, int] = {}  # node -> the client that it claims to be, first claims first
        self._asked: dict[int, tuple[Message, float]] = {}  # node -> the question, and when it was sent
        self._fingerprints: dict[int, str] = {}  # node -> fingerprint of its key
        self._excluded: set[int] = set()  # nodes that cannot take part; the log has said why

    @property
    def population(self) -> int:
        """N, the number of clients; without a fixed number, all that have connected so far."""
        return len(set(self._claims.values())) if self.fixed is None else self.fixed

    def total_weight(self, weighted: bool) -> float:
        """The weight of all N clients. Those that have not connected yet count with the mean of the others."""
        known = self.weights if self.weights.keys() >= self.samples.keys() else self.samples
        return sum(known.values()) * self.population / len(known) if weighted else self.population

    def present(self, grid: Grid, least: int) -> dict[int, int]:
        """The connected nodes by client. Waits until there are at least `least`."""
        end, said = time.monotonic() + self.wait, -1
        while True:
            nodes, awaited = self._look(grid)
            if len(nodes) >= least and not awaited:
                return nodes
            if time.monotonic() > end:
                if len(nodes) >= least:
                    return nodes
                raise UserError(self._too_few(nodes, least))
            if len(nodes) != said and len(nodes) < least:
                log.info("waiting for clients: %d of %d connected", len(nodes), least)
                said = len(nodes)
            time.sleep(PAUSE)

    def lost(self, client: int, node: int) -> None:
        """A node has not replied. Before it takes part again, it must answer the question for its partition."""
        if self.fixed is not None and self._claims.get(node) == client:
            del self._claims[node]

    def sample(
        self, seed: int, round: int, active: int, present: Iterable[int], *, substitutes: bool = True
    ) -> tuple[int, ...]:
        """Sample the clients of a round as the simulator does; replace those that are not connected by substitutes."""
        here = set(present)
        if self.fixed is None:
            drawn = random.Random(key("present", seed, round)).sample(sorted(here), min(active, len(here)))
            return tuple(sorted(drawn))
        drawn = sample_clients(seed, round, self.fixed, active)
        spare = sorted(here - set(drawn)) if substitutes else []
        absent = [client for client in drawn if client not in here]
        instead = random.Random(key("substitutes", seed, round)).sample(spare, min(len(absent), len(spare)))
        for client in absent:
            log.warning("round %d: client %d is not connected", round + 1, client)
        if instead:
            log.warning("round %d: replaced by client %s", round + 1, ", ".join(map(str, instead)))
        return tuple(sorted([*(set(drawn) & here), *instead]))

    def _look(self, grid: Grid) -> tuple[dict[int, int], bool]:
        """The connected nodes by client, and whether an answer may still come soon."""
        if self._keyed:
            self._fingerprints = {node.node_id: key_fingerprint(node.public_key) for node in grid.get_nodes()}
        online = set(self._fingerprints if self._keyed else grid.get_node_ids())
        if self.fixed is None:
            self._number(sorted(online))
        else:
            self._forget(online)
            self._ask(grid, sorted(online - set(self._claims) - set(self._asked) - self._excluded))
            self._hear(grid)
        nodes: dict[int, int] = {}
        for node, client in self._claims.items():
            if node in online:
                nodes.setdefault(client, node)
        fresh = [node for node, (_, when) in self._asked.items() if time.monotonic() - when < PATIENCE]
        return nodes, len(nodes) < (self.fixed or 0) and any(node in online for node in fresh)

    def _forget(self, online: set[int]) -> None:
        """Forget nodes that have disconnected: they may return as different clients."""
        self._claims = {node: client for node, client in self._claims.items() if node in online}
        self._asked = {node: question for node, question in self._asked.items() if node in online}
        self._excluded &= online

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        """Ask new nodes for their partition, number of samples and number of local steps."""
        for node in nodes:
            question = Message(RecordDict({CONFIG: ConfigRecord()}), node, MessageType.QUERY, ttl=max(self.wait, 60.0))
            self._asked[node] = send(grid, question), time.monotonic()

    def _hear(self, grid: Grid) -> None:
        """Take the answers that have arrived."""
        for node, (question, _) in list(self._asked.items()):
            answer = pull(grid, question)
            if answer is None:
                continue
            del self._asked[node]
            try:
                self._claims[node] = self._claimed(node, answer)
            except ValueError as error:
                self._excluded.add(node)
                log.error("node %d cannot take part: %s", node, error)

    def _claimed(self, node: int, answer: Message) -> int:
        """The client that a node is; ValueError if it cannot take part."""
        if not answer.has_error():
            return self._stated(node, answer)
        reason = answer.error.reason or f"error {answer.error.code}"
        if NO_ANSWER not in reason:
            raise ValueError(reason)
        return self._free()

    def _free(self) -> int:
        """The lowest partition that no node has claimed."""
        free = set(range(self.population)) - set(self._claims.values())
        if not free:
            raise ValueError(f"there are already {self.population} clients")
        return min(free)

    def _stated(self, node: int, answer: Message) -> int:
        facts = answer.content.metric_records.get(METRICS)
        if facts is None:
            raise ValueError(f'its answer has no record "{METRICS}"')
        if "partition-id" not in facts:
            return self._free()  # an app that does not know its partition
        client, partitions = (count(facts, name, least=0) for name in ("partition-id", "num-partitions"))
        known = {name: count(facts, name) for name in ("num-examples", "steps") if name in facts}
        if partitions != self.fixed or client >= partitions:
            raise ValueError(f"it has partition {client} of {partitions}, but the strategy has {self.fixed} clients")
        if self._keyed:
            self._check_key(node, client)
        if client in self._claims.values():
            log.warning("node %d also has partition %d; it waits until the first node disconnects", node, client)
        else:
            self.samples |= {client: known["num-examples"]} if "num-examples" in known else {}
            self.steps |= {client: known["steps"]} if "steps" in known else {}
        return client

    def _check_key(self, node: int, client: int) -> None:
        """Raise ValueError if the partition belongs to a different key."""
        found = self._fingerprints.get(node, "")
        owner = self._listed.get(client) if self._listed else self.keys.setdefault(str(client), found)
        if not found or found != owner:
            raise ValueError(f"partition {client} belongs to a different key")

    def _number(self, nodes: list[int]) -> None:
        """Give new nodes the next numbers."""
        for node in nodes:
            self._claims.setdefault(node, len(self._claims))

    def _too_few(self, nodes: dict[int, int], least: int) -> str:
        found = f"{least} are needed, but {len(nodes)} were connected after {self.wait:g} s"
        if self.fixed is None:
            return f"min_available_nodes: {found}. Start more SuperNodes, or change min_available_nodes or wait"
        missing = [client for client in range(self.fixed) if client not in nodes]
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        others = len(self._excluded)
        hint = f"Connected nodes that cannot take part: {others}; the log above gives the reasons. " if others else ""
        return (
            f"clients: {found}; missing: {shown}. "
            f"{hint}Start a SuperNode for each missing client, with --node-config 'partition-id={missing[0]} "
            f"num-partitions={self.fixed}', or change min_available_nodes or wait of FlowerStrategy"
        )


def key_fingerprint(key: bytes) -> str:
    """A public key, as Flower has it (PEM), as a short text; empty if there is none."""
    return hashlib.sha256(key).hexdigest() if key else ""


def read_keys(files: Mapping[int, Path | str]) -> dict[int, str]:
    """The fingerprint of each partition's key, from the files that `flwr supernode register` takes."""
    keys = {}
    for client, file in files.items():
        try:
            key = load_ssh_public_key(Path(file).read_bytes())
        except (OSError, ValueError) as error:
            raise UserError(f"partition_keys: {file}: not the public key of a SuperNode ({error})") from error
        keys[client] = key_fingerprint(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return keys
