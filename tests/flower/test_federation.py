"""Which node is which client: silent nodes, nodes that claim a partition twice, and keys."""

from __future__ import annotations

import logging
import time

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Error, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from loopback import Loopback

from fedmim.errors import UserError
from fedmim.flower import federation as module
from fedmim.flower.federation import Federation


class Nodes(Loopback):
    """Nodes that answer the question for their partition; None is silent, a string is an error."""

    def __init__(self, partitions, total=None, keys=None):
        super().__init__(dict.fromkeys(partitions))
        self.partitions, self.total, self.keys = dict(partitions), total or len(partitions), keys or {}
        self.asked = []

    def get_nodes(self):
        return [NodeInfo(node_id=node, public_key=self.keys.get(node, b"")) for node in self.nodes]

    def _deliver(self, message):
        node = message.metadata.dst_node_id
        self.asked.append(node)
        partition = self.partitions[node]
        if partition is None:
            return None
        if isinstance(partition, str):
            return Message(Error(2, partition), reply_to=message)
        facts = partition if isinstance(partition, dict) else {"partition-id": partition, "num-partitions": self.total}
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 5, **facts})}), reply_to=message)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    monkeypatch.setattr(module, "PAUSE", 0.01)


@pytest.mark.usefixtures("impatient")
def test_a_silent_node_is_waited_for_once_and_not_in_later_rounds():
    grid, federation = Nodes({10: 0, 11: 1, 12: None}), Federation(3, wait=60.0)
    begin = time.monotonic()
    assert federation.present(grid, 2) == {0: 10, 1: 11}
    first = time.monotonic() - begin
    assert 0.3 <= first < 5
    begin = time.monotonic()
    for _ in range(20):
        assert federation.present(grid, 1) == {0: 10, 1: 11}
    assert time.monotonic() - begin < 0.3
    assert grid.asked == [10, 11, 12]  # once each


@pytest.mark.usefixtures("impatient")
def test_an_answer_that_comes_late_counts_from_then_on():
    grid, federation = Nodes({10: 0, 11: None}), Federation(2, wait=60.0)
    assert federation.present(grid, 1) == {0: 10}
    question = next(m for m in grid.sent if m.metadata.dst_node_id == 11)
    grid.partitions[11] = 1
    grid.waiting[question.metadata.message_id] = grid._deliver(question)
    assert federation.present(grid, 1) == {0: 10, 1: 11}


def test_a_later_node_with_the_same_partition_does_not_displace_the_first_and_takes_over_when_it_leaves(caplog):
    grid, federation = Nodes({10: 0, 11: 1}), Federation(2, wait=0.0)
    assert federation.present(grid, 2) == {0: 10, 1: 11}
    grid.partitions[5] = 1
    grid.nodes[5] = None
    with caplog.at_level(logging.WARNING, "flwr"):
        assert federation.present(grid, 2) == {0: 10, 1: 11}
    assert "node 5 also has partition 1; it waits until the first node disconnects" in caplog.text
    del grid.nodes[11]
    assert federation.present(grid, 2) == {0: 10, 1: 5}


def test_a_node_that_did_not_reply_must_answer_again_and_another_may_take_its_place():
    grid, federation = Nodes({10: 0, 11: 1}), Federation(2, wait=0.0)
    federation.present(grid, 2)
    grid.partitions[11] = None  # dead, but still listed
    federation.lost(1, 11)
    grid.partitions[12] = 1
    grid.nodes[12] = None
    assert federation.present(grid, 1) == {0: 10, 1: 12}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"partition-id": 7, "num-partitions": 2}, "it has partition 7 of 2, but the strategy has 2 clients"),
        ({"partition-id": 0, "num-partitions": 3}, "it has partition 0 of 3, but the strategy has 2 clients"),
        ({"partition-id": float("inf"), "num-partitions": 2}, "partition-id must be a finite number, got inf"),
        ({"partition-id": 0}, "num-partitions must be a finite number, got None"),
        ({"partition-id": 0, "num-partitions": 2, "num-examples": 0}, "num-examples must be a whole number"),
        ("the disk is full", "the disk is full"),
    ],
)
def test_a_node_with_a_wrong_answer_is_left_out_with_its_reason_and_asked_once(facts, words, caplog):
    grid, federation = Nodes({10: 1, 11: facts}, total=2), Federation(2, wait=0.0)
    with caplog.at_level(logging.ERROR, "flwr"):
        for _ in range(3):
            assert federation.present(grid, 1) == {1: 10}
    assert caplog.text.count("node 11 cannot take part: " + words) == 1
    with pytest.raises(UserError, match=r"missing: 0\. Connected nodes that cannot take part: 1"):
        federation.present(grid, 2)


def test_without_a_number_of_clients_nodes_are_numbered_and_never_asked():
    grid, federation = Nodes({30: 0, 20: 1}), Federation(None, wait=0.0)
    assert federation.present(grid, 2) == {0: 20, 1: 30}
    del grid.nodes[20]
    grid.nodes[10] = None
    assert federation.present(grid, 2) == {1: 30, 2: 10}  # numbers are never given twice
    assert federation.population == 3
    assert grid.asked == []


def make_key(folder, name):
    """A public key as Flower has it, and the file that `flwr supernode register` takes."""
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    file = folder / f"{name}.pub"
    file.write_bytes(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b" someone@somewhere\n")
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), file


def test_a_partition_belongs_to_the_key_that_first_claims_it_also_in_a_resumed_run(tmp_path, caplog):
    (ours, _), (thief, _) = make_key(tmp_path, "a"), make_key(tmp_path, "b")
    federation, owners = Federation(1, wait=0.0, partition_keys="first"), {}
    federation.keys = owners
    assert federation.present(Nodes({10: 0}, keys={10: ours}), 1) == {0: 10}
    resumed = Federation(1, wait=0.0, partition_keys="first")
    resumed.keys = owners
    with pytest.raises(UserError, match="missing: 0"), caplog.at_level(logging.ERROR, "flwr"):
        resumed.present(Nodes({11: 0}, keys={11: thief}), 1)
    assert "node 11 cannot take part: partition 0 belongs to a different key" in caplog.text
    assert resumed.present(Nodes({12: 0}, keys={12: ours}), 1) == {0: 12}  # the same key on a new node


def test_the_operator_can_list_the_keys(tmp_path):
    (first, first_file), (second, second_file) = make_key(tmp_path, "a"), make_key(tmp_path, "b")
    listed = {0: first_file, 1: str(second_file)}
    federation = Federation(2, wait=0.0, partition_keys=listed)
    grid = Nodes({10: 1, 11: 0}, keys={10: first, 11: second})
    with pytest.raises(UserError, match="Connected nodes that cannot take part: 2"):
        federation.present(grid, 2)
    grid = Nodes({10: 0, 11: 1}, keys={10: first, 11: second})
    assert Federation(2, wait=0.0, partition_keys=listed).present(grid, 2) == {0: 10, 1: 11}


@pytest.mark.parametrize(
    ("clients", "keys", "words"),
    [
        (None, "first", "partition_keys: name the number of partitions"),
        (2, "all", "partition_keys: must be any, first, or a file for each partition, got 'all'"),
        (2, {0: "nothing.pub"}, "partition_keys: nothing.pub: not the public key of a SuperNode"),
    ],
)
def test_mistakes_in_the_keys_are_named(clients, keys, words):
    with pytest.raises(UserError, match=words):
        Federation(clients, 0.0, keys)
