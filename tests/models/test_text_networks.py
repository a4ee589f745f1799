"""The networks for text: sizes by hand, against other implementations, and trained on tokens by every engine."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import fedmim
from fedmim.data.transforms import as_indices
from fedmim.errors import UserError
from fedmim.models import FlatModel, make_model
from fedmim.models.text_networks import LastOutputLSTM, Transformer
from fedmim.simulation.engines import obstacle_to_vectorising, serial
from fedmim.simulation.randomness import client_generator, minibatches
from fedmim.simulation.training import Work, one_thread

LENGTH, TOKENS = 7, 11
NAMES = ["lstm", "transformer"]
SETTINGS = fedmim.Settings(
    rounds=2, participation=1.0, batch_size=4, local_epochs=2, lr=0.5, weight_decay=0, clip_norm=None
)


def linear(inputs, outputs):
    return inputs * outputs + outputs


def small(name):
    return make_model(name, (LENGTH,), TOKENS, seed=3, tokens=TOKENS)


def task(name, sizes=(9, 5, 2)):
    generator = torch.Generator().manual_seed(0)
    x = [torch.randint(TOKENS, (size, LENGTH), generator=generator, dtype=torch.uint8) for size in sizes]
    clients = [(tokens, tokens[:, 0].long()) for tokens in x]  # the next character is the first
    return fedmim.Task(small(name), clients, clients[0], prepare=as_indices)


def test_the_number_of_parameters():
    gates = 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2)  # inputs, last outputs and two biases per layer
    found = sum(p.numel() for p in make_model("lstm", (80,), 80, tokens=80).parameters())
    assert found == 80 * 8 + gates + linear(256, 80) == 819_920
    block = 2 * 2 * 64 + linear(64, 3 * 64) + linear(64, 64) + linear(64, 256) + linear(256, 64)
    found = sum(p.numel() for p in make_model("transformer", (80,), 80, tokens=80).parameters())
    assert found == 2 * 80 * 64 + 2 * block + 2 * 64 + linear(64, 80) == 115_536


def test_the_lstm_is_its_recurrence():
    """i, f, o = sigmoid, g = tanh of W x + U h + b; c <- f c + i g; h <- o tanh(c); two layers."""
    model = LastOutputLSTM(TOKENS, 3, embedding=2, hidden=4).double()
    x = torch.randint(TOKENS, (5, LENGTH), generator=torch.Generator().manual_seed(1))
    sequence = list(model.embedding(x).unbind(1))
    for layer in range(2):
        weights = [getattr(model.lstm, f"{kind}_l{layer}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        h = c = torch.zeros(5, 4, dtype=torch.float64)
        for t, inputs in enumerate(sequence):
            i, f, g, o = (inputs @ weights[0].T + h @ weights[1].T + weights[2] + weights[3]).chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            sequence[t] = h
    torch.testing.assert_close(model(x), model.head(sequence[-1]), rtol=1e-12, atol=1e-13)


def test_the_transformer_is_made_of_pytorchs_encoder_layers():
    model = Transformer(TOKENS, 3, LENGTH, blocks=2).double()
    x = torch.randint(TOKENS, (5, LENGTH), generator=torch.Generator().manual_seed(1))
    h = model.embedding.weight[x] + model.positions
    for block in model.blocks:
        layer = nn.TransformerEncoderLayer(64, 4, 256, 0.0, "gelu", batch_first=True, norm_first=True).double()
        own = {"self_attn.in_proj_": block.qkv, "self_attn.out_proj.": block.out, "norm1.": block.norm1}
        own |= {"norm2.": block.norm2, "linear1.": block.mlp[0], "linear2.": block.mlp[2]}
        layer.load_state_dict(
            {f"{name}{kind}": getattr(part, kind) for name, part in own.items() for kind in ("weight", "bias")}
        )
        h = layer(h)
    torch.testing.assert_close(model(x), model.head(model.norm(h[:, -1])), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_weights_follow_the_seed(name):
    one, same, other = (make_model(name, (LENGTH,), TOKENS, seed, TOKENS).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["embedding.weight"], other["embedding.weight"])


@pytest.mark.parametrize("name", NAMES)
def test_a_client_trains_as_in_a_plain_pytorch_loop_to_the_bit(name):
    made = task(name)
    flat, algorithm = FlatModel(made.model, made.loss), fedmim.FedAvg()
    down = algorithm.broadcast(algorithm.init(flat.params.clone()))
    work = Work(made, SETTINGS, 0, SETTINGS.lr, range(3), down, flat.buffers, lambda _: {}, lambda _: True)
    with one_thread():
        for reply in serial(algorithm, flat, work):
            model, (x, y) = copy.deepcopy(made.model), made.clients[reply.client]
            optimizer = torch.optim.SGD(model.parameters(), lr=SETTINGS.lr)
            for index in minibatches(len(x), SETTINGS, client_generator(SETTINGS.seed, 0, reply.client)):
                optimizer.zero_grad()
                F.cross_entropy(model(x[index].long()), y[index]).backward()
                optimizer.step()
            plain = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
            assert torch.equal(reply.upload["params"], plain)
            assert not torch.equal(plain, down["params"])


def final(made, engine):
    run = fedmim.rounds(fedmim.FedMIM(), made, SETTINGS, fedmim.Execution(engine=engine, workers=2))
    records = list(run)
    return run.server.state.params, records[-1]


@pytest.mark.parametrize("name", NAMES)
def test_worker_processes_train_tokens_to_the_same_bits(name):
    (one, record), (other, same) = (final(task(name), engine) for engine in ("serial", "processes"))
    assert torch.equal(one, other)
    assert (record.test_accuracy, record.test_loss) == (same.test_accuracy, same.test_loss)


def test_a_stack_of_transformers_trains_as_one_after_the_other():
    (one, _), (other, _) = (final(task("transformer"), engine) for engine in ("serial", "vectorised"))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_whether_a_stack_is_possible_is_found_out_without_warnings(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = task(name)
        found = obstacle_to_vectorising(made, FlatModel(made.model, made.loss))
    assert not caught
    assert (found is None) == (name == "transformer")


def test_a_stack_of_lstms_is_rejected_in_one_line():
    message = r"^engine: vectorised cannot train this model: vmap does not support it \([^\n]*\); use serial or auto$"
    with pytest.raises(UserError, match=message):
        final(task("lstm"), "vectorised")


@pytest.mark.parametrize(
    ("name", "tokens", "message"),
    [
        ("mlp", 80, "^model: mlp is not for text; use lstm or transformer"),
        ("lstm", None, "^model: lstm is only for text; use logistic or"),
    ],
)
def test_networks_for_other_inputs_are_rejected_with_what_to_use(name, tokens, message):
    with pytest.raises(UserError, match=message):
        make_model(name, (80,), 80, tokens=tokens)
