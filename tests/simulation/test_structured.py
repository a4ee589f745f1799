"""Structured inputs, targets and outputs: the run of the same model on one tensor, in every engine."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from every_method import EVERY_METHOD
from problems import SIZES, busy, classification, network
from torch import nn
from worker_runs import assert_same_bits, finished

import fedmim
from fedmim.errors import UserError
from fedmim.simulation.evaluation import join_outputs

METHODS = ["fedmim", "scaffold", "fedsam", "mimelite"]  # with two gradients a step, and with the gradient of all data


class TwoInputs(nn.Module):
    """The network of `classification` on the features of two inputs."""

    def __init__(self, wrap=lambda outputs: outputs):
        super().__init__()
        self.network, self.wrap = network(), wrap

    def forward(self, left, right):
        return self.wrap(self.network(torch.cat([left, right], dim=-1)))


def as_dict(x):
    return {"right": x[:, 1:], "left": x[:, :1]}  # in another order than in `forward`


def as_tuple(x):
    return x[:, :1], x[:, 1:]


def structured(plain, inputs=as_dict, **options):
    """The task with its x in two parts."""
    pairs = [(inputs(x), y) for x, y in plain.clients]
    return replace(plain, model=TwoInputs(), clients=pairs, test=(inputs(plain.test[0]), plain.test[1]), **options)


def nested(plain):
    """The task with structured targets and outputs as well."""
    task = structured(plain, loss=nested_loss, metric=nested_accuracy)
    pairs = [(x, (y, {"label": y})) for x, y in task.clients]
    test = task.test[0], (task.test[1], {"label": task.test[1]})
    return replace(task, model=TwoInputs(in_dict), clients=pairs, test=test)


def in_dict(outputs):
    return {"logits": outputs, "more": (outputs.exp(), outputs.square().mean(), None)}


def nested_loss(outputs, targets):
    return F.cross_entropy(outputs["logits"], targets[1]["label"])


def nested_accuracy(outputs, targets):
    return (outputs["logits"].argmax(1) == targets[0]).double().mean()


FORMS = {"dict": structured, "tuple": lambda plain: structured(plain, as_tuple), "nested": nested}


CASES = [("dict", "fedmim"), ("tuple", "fedmim"), *(("nested", name) for name in METHODS)]


@pytest.mark.parametrize(("form", "name"), CASES)
def test_a_serial_run_has_the_bits_and_records_of_one_tensor(form, name):
    plain = classification()
    expected = finished(EVERY_METHOD[name], plain, engine="serial")
    assert_same_bits(finished(EVERY_METHOD[name], FORMS[form](plain), engine="serial"), expected)


@pytest.mark.parametrize(("form", "name"), CASES)
def test_a_vectorised_run_agrees_to_rounding_with_ragged_last_batches(form, name):
    plain = classification()
    runs = [finished(EVERY_METHOD[name], FORMS[form](plain), engine=each) for each in ("vectorised", "serial")]
    assert [run.engine for run, _ in runs] == ["vectorised", "serial"]
    torch.testing.assert_close(runs[0][0].params, runs[1][0].params, rtol=1e-12, atol=1e-12)
    assert runs[0][1][-1].test_loss == pytest.approx(runs[1][1][-1].test_loss, rel=1e-10)
    assert runs[0][1][-1].test_accuracy == runs[1][1][-1].test_accuracy


def test_a_vectorised_run_is_traced_to_the_same_bits(monkeypatch):
    import fedmim.models.tracing as tracing

    runs = []
    for after in (2, 10**9):
        monkeypatch.setattr(tracing, "TRACE_AFTER", after)
        runs.append(finished(fedmim.FedMIM(), nested(classification()), engine="vectorised", rounds=2))
    assert_same_bits(*runs)


def test_worker_processes_have_the_bits_of_the_serial_run():
    task = nested(classification())
    assert_same_bits(*(finished(fedmim.Scaffold(), task, engine=each) for each in ("serial", "processes")))


def noise(shape, generator):
    return 0.1 * torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("engine", ["serial", "vectorised"])
def test_prepare_and_augment_get_x_as_it_is(engine):
    plain = classification(augment=lambda x, g: x + noise(x.shape, g), prepare=lambda x: 3 * x)

    def augment(x, generator):
        whole = torch.cat([x["left"], x["right"]], dim=1)
        return as_dict(whole + noise(whole.shape, generator))

    task = structured(plain, augment=augment, prepare=lambda x: {name: 3 * part for name, part in x.items()})
    one, other = (finished(fedmim.MimeLite(), each, engine=engine)[0].params for each in (plain, task))
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_run_resumes_to_the_same_bits(tmp_path):
    task, (settings, execution) = nested(classification()), busy(engine="serial")
    whole = fedmim.rounds(fedmim.Scaffold(), task, settings, execution)
    records = list(whole)
    part = fedmim.rounds(fedmim.Scaffold(), task, settings, execution, folder=tmp_path)
    next(part), next(part)
    part.save()
    resumed = fedmim.rounds(fedmim.Scaffold(), task, settings, execution, folder=tmp_path, resume=True)
    rest = list(resumed)
    assert [replace(each, seconds=0) for each in rest] == [replace(each, seconds=0) for each in records[2:]]
    assert torch.equal(resumed.params, whole.params)


def test_outputs_of_batches_are_joined_by_kind():
    batches = [torch.arange(6.0).view(3, 2), torch.arange(2.0).view(1, 2)]
    joined = join_outputs([{"rows": x, "pair": (x.mean(), "text")} for x in batches], [3, 1])
    assert torch.equal(joined["rows"], torch.cat(batches))
    assert joined["pair"][0].item() == pytest.approx((3 * 2.5 + 0.5) / 4)
    assert joined["pair"][1] is None
    own = join_outputs([OwnDict(rows=(x,)) for x in batches], [3, 1])
    assert torch.equal(own["rows"][0], torch.cat(batches))


class OwnDict(dict):
    """A class that torch does not know as a structure."""


def test_evaluation_in_parts_is_that_of_the_whole():
    x = torch.randn(2345, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(2345) % 3
    task = nested(replace(classification(), test=(x, y)))
    result = fedmim.simulate(fedmim.FedAvg(), task, fedmim.Settings(rounds=1))
    with torch.no_grad():
        outputs = result.model(**as_dict(x))["logits"]
    assert result.history[0].test_loss == pytest.approx(F.cross_entropy(outputs, y).item(), rel=1e-12)
    assert result.history[0].test_accuracy == pytest.approx((outputs.argmax(1) == y).double().mean().item())


def test_without_a_metric_structures_have_none():
    task = replace(nested(classification()), metric=None)
    assert fedmim.simulate(fedmim.FedAvg(), task, fedmim.Settings(rounds=1)).history[0].test_accuracy is None


class ImageAndMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(2, 3, 3)

    def forward(self, image, scale):
        return self.layer(image).mean((2, 3)) * scale


def test_images_in_a_structure_are_laid_out_with_channels_last():
    model = fedmim.models.FlatModel(ImageAndMask(), F.cross_entropy)
    x = {"image": torch.randn(4, 2, 5, 5), "scale": torch.ones(4, 1)}
    laid_out = model.laid_out(x)
    assert laid_out["image"].is_contiguous(memory_format=torch.channels_last)
    assert laid_out["scale"] is x["scale"]
    assert torch.equal(laid_out["image"], x["image"])


class SequenceModel(nn.Module):
    """A mean of word vectors over the words that are there."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.words, self.out = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, ids, mask):
        mask = mask.unsqueeze(-1)
        return self.out((self.words(ids) * mask).sum(1) / mask.sum(1))


def sentence(n):
    return [1 + (n + word) % 8 for word in range(1 + n % 5)], n % 2


def padded(items):
    longest = max(len(words) for words, _ in items)
    ids = torch.tensor([words + [0] * (longest - len(words)) for words, _ in items])
    return {"ids": ids, "mask": (ids > 0).float()}, torch.tensor([label for _, label in items])


def test_ragged_sequences_train_in_every_engine():
    bounds = [0, 3, 7, 8, 20, 30]
    users = {f"user {i}": [sentence(n) for n in range(*ends)] for i, ends in enumerate(pairwise(bounds))}
    task = fedmim.Task.from_users(SequenceModel(), users, [sentence(n) for n in range(40, 60)], collate=padded)
    assert [x["ids"].shape for x, _ in task.clients] == [(3, 5), (4, 5), (1, 5), (12, 5), (10, 5)]
    runs = {each: finished(fedmim.FedMIM(), task, engine=each) for each in ("serial", "vectorised", "processes")}
    assert_same_bits(runs["serial"], runs["processes"], clients=5)
    torch.testing.assert_close(runs["serial"][0].params, runs["vectorised"][0].params, rtol=1e-5, atol=1e-6)


# Errors.


def run(task, engine="serial"):
    return fedmim.simulate(fedmim.FedAvg(), task, *busy(engine=engine, participation=1.0))


@pytest.mark.parametrize("engine", ["serial", "vectorised", "auto"])
@pytest.mark.parametrize("loss", [F.cross_entropy, nn.CrossEntropyLoss()], ids=["function", "module"])
def test_a_model_that_returns_a_dict_needs_a_loss(loss, engine):
    task = replace(structured(classification()), model=TwoInputs(in_dict), loss=loss)
    with pytest.raises(UserError, match=r"^loss: the model returns a dict with logits, more.* give Task a `loss`"):
        run(task, engine)


def test_structured_targets_need_a_loss():
    plain = classification()
    task = replace(plain, clients=[(x, {"label": y}) for x, y in plain.clients])
    with pytest.raises(UserError, match=r"^loss: the targets are a dict with label, .* give Task a `loss`"):
        run(task)


@pytest.mark.parametrize("engine", ["serial", "vectorised"])
def test_outputs_of_another_length_than_the_targets_are_named(engine):
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network()

        def forward(self, x):
            return self.network(x)[::2]

    with pytest.raises(UserError, match=r"^loss: a batch has \d outputs and \d targets"):
        run(classification(SIZES[1:4], model=Half()), engine)


def test_a_failing_loss_of_the_user_stays_their_own_error():
    def loss(outputs, targets):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        run(replace(nested(classification()), loss=loss))


@pytest.mark.parametrize("engine", ["serial", "vectorised"])
@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (network(), as_tuple, r"model\(\*x\): too many positional arguments"),
        (TwoInputs(), lambda x: x, r"model\(x\): missing a required argument: 'right'"),
        (TwoInputs(), lambda x: {"left": x, "up": x}, r"model\(\*\*x\): missing a required argument: 'right'"),
    ],
)
def test_a_model_that_cannot_take_x_is_named(model, inputs, message, engine):
    with pytest.raises(UserError, match=f"^model: .* cannot be called as {message}"):
        run(replace(structured(classification(), inputs), model=model), engine)


def test_clients_of_different_shapes_cannot_be_stacked():
    task = structured(classification((5, 6)))
    task.clients[1] = ({"left": task.clients[1][0]["left"], "right": torch.ones(6, 2)}, task.clients[1][1])
    with pytest.raises(UserError, match=r"^engine: vectorised cannot .* samples of different shapes; use serial"):
        run(task, "vectorised")


def test_auto_trains_clients_of_different_shapes_one_by_one():
    """Sequences that are padded per client: the model takes any length."""
    model = nn.Sequential(nn.AdaptiveAvgPool1d(4), nn.Linear(4, 3))
    clients = [(torch.randn(6, length), torch.arange(6) % 3) for length in (5, 7)]
    task = fedmim.Task(model, clients, clients[0])
    found = fedmim.rounds(fedmim.FedAvg(), task, fedmim.Settings(rounds=1, participation=1.0))
    assert found.engine != "vectorised"
    assert next(found).refused == 0
    assert (
        fedmim.rounds(fedmim.FedAvg(), replace(task, clients=clients[:1] * 2), fedmim.Settings()).engine == "vectorised"
    )


ONES = torch.ones(3)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (((ONES, torch.ones(2)), ONES), r"x\[0\] has 3 samples and x\[1\] has 2; give"),
        (({"a": ONES}, {"b": torch.ones(2)}), r"x\['a'\] has 3 samples and y\['b'\] has 2; give"),
        (({"a": [1.0, 2.0, 3.0]}, ONES), r"x\['a'\]\[0\] must be a tensor, got float; use torch.as_tensor"),
        (({"a": ONES.numpy()}, ONES), r"x\['a'\] must be a tensor, got ndarray; use torch.as_tensor"),
        (({"a": None}, ONES), r"x\['a'\] must be a tensor, got NoneType"),
        (({}, ONES), "x has no tensors"),
        ((ONES, ()), "y has no tensors"),
        ((torch.tensor(1.0), ONES), "x is a single number"),
        ((ONES, ONES, ONES), r"must be a pair \(x, y\) of tensors, got a tuple of 3; .*\(\(input, input\), y\)"),
        (ONES, r"must be a pair \(x, y\) of tensors, got Tensor"),
        ({"x": ONES, "y": ONES}, r"must be a pair \(x, y\) of tensors, got dict"),
        (torch.utils.data.TensorDataset(ONES, ONES), ".* got TensorDataset; Task.from_datasets reads Datasets"),
    ],
)
def test_data_that_does_not_fit_is_named_with_its_part(pair, message):
    with pytest.raises(UserError, match=f"^test: {message}"):
        replace(classification(), test=pair)
    task = classification()
    task.clients[2] = pair
    with pytest.raises(UserError, match=f"^client 2: {message}"):
        run(task)
