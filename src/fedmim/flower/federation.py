"""Which node has which client's data. Node ids are new in every run; partitions stay the same."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedmim.errors import UserError
from fedmim.flower.messages import CONFIG, METRICS, number
from fedmim.simulation.randomness import key, sample_clients

log = logging.getLogger("flwr")
PAUSE = 1.0  # seconds between two checks for connected nodes
NO_ANSWER = "No query function registered"  # Flower's error for a ClientApp without a query function


class Federation:
    """The nodes of a federation by client, 0 to N - 1."""

    def __init__(self, clients: int, wait: float) -> None:
        self.population = clients  # N
        self.wait = wait  # seconds
        self.samples: dict[int, int] = {}  # client -> its number of samples, as reported
        self.steps: dict[int, int] = {}  # client -> its number of local steps, as reported
        self._client_of: dict[int, int] = {}  # node -> client, for nodes that have a client
        self._asked: set[int] = set()  # nodes that do not have to be asked again

    def present(self, grid: Grid, least: int) -> dict[int, int]:
        """The connected nodes by client. Waits until there are at least `least`."""
        end, said = time.monotonic() + self.wait, -1
        while True:
            online = set(grid.get_node_ids())
            self._asked &= online  # a node that was disconnected may return as a different client
            new = sorted(online - self._asked)
            if new:
                self._ask(grid, new, max(PAUSE, end - time.monotonic()))
            # If two nodes have the same client, the later one is used: the client was restarted.
            nodes = {client: node for node, client in self._client_of.items() if node in online}
            if len(nodes) >= least:
                return nodes
            if time.monotonic() > end:
                raise UserError(self._too_few(nodes, least, len(online)))
            if len(nodes) != said:
                log.info("waiting for clients: %d of %d connected", len(nodes), least)
                said = len(nodes)
            time.sleep(PAUSE)

    def sample(self, seed: int, round: int, active: int, present: Iterable[int]) -> tuple[int, ...]:
        """Sample the clients of a round as the simulator does; replace those that are not connected."""
        drawn = sample_clients(seed, round, self.population, active)
        here = set(present)
        spare = sorted(here - set(drawn))
        absent = [client for client in drawn if client not in here]
        substitutes = random.Random(key("substitutes", seed, round)).sample(spare, min(len(absent), len(spare)))
        for client in absent:
            log.warning("round %d: client %d is not connected", round + 1, client)
        if substitutes:
            log.warning("round %d: replaced by client %s", round + 1, ", ".join(map(str, substitutes)))
        return tuple(sorted([*(set(drawn) & here), *substitutes]))

    def _ask(self, grid: Grid, nodes: list[int], timeout: float) -> None:
        """Ask new nodes for their partition, number of samples and number of local steps."""
        content = RecordDict({CONFIG: ConfigRecord()})
        messages = [Message(content, node, MessageType.QUERY, ttl=timeout) for node in nodes]
        replies = {
            reply.metadata.reply_to_message_id: reply for reply in grid.send_and_receive(messages, timeout=timeout)
        }
        for node, message in zip(nodes, messages, strict=True):
            reply = replies.get(message.metadata.message_id)
            if reply is None:
                continue  # ask again at the next check, if it is still connected
            self._asked.add(node)
            if not reply.has_error():
                self._enter(node, reply)
            elif NO_ANSWER in (reply.error.reason or ""):
                self._number(node)
            else:
                log.error("node %d cannot take part: %s", node, reply.error.reason)

    def _enter(self, node: int, reply: Message) -> None:
        facts = reply.content.metric_records[METRICS]
        client, partitions, samples = (
            int(number(facts, name)) for name in ("partition-id", "num-partitions", "num-examples")
        )
        if partitions != self.population or not 0 <= client < partitions:
            log.error(
                "node %d cannot take part: it has partition %d of %d, but the strategy has %d clients",
                *(node, client, partitions, self.population),
            )
            return
        if client in self._client_of.values():
            log.warning("client %d is now node %d: a restart, or two nodes with the same partition", client, node)
        self._client_of[node] = client
        self.samples[client], self.steps[client] = samples, int(number(facts, "steps"))

    def _number(self, node: int) -> None:
        """Give a node whose app does not report its partition the lowest free one."""
        free = set(range(self.population)) - set(self._client_of.values())
        if free:
            self._client_of[node] = min(free)
        else:
            log.error("node %d cannot take part: there are already %d clients", node, self.population)

    def _too_few(self, nodes: dict[int, int], least: int, online: int) -> str:
        missing = [client for client in range(self.population) if client not in nodes]
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        others = online - len(nodes)
        hint = f"Connected nodes that cannot take part: {others}; the log above gives the reasons. " if others else ""
        return (
            f"clients: {least} are needed, but {len(nodes)} were connected after {self.wait:g} s; missing: {shown}. "
            f"{hint}Start a SuperNode for each missing client, with --node-config 'partition-id={missing[0]} "
            f"num-partitions={self.population}', or change min_available_nodes or wait of FlowerStrategy"
        )
