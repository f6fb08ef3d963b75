"""Phase A through attention: its drift is autograd's, only particles move, the energy falls, and it resumes."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch

transformers = pytest.importorskip("transformers")

import kernelformer as kf  # noqa: E402
from kernelformer.engine import attend_reference  # noqa: E402
from kernelformer.hf import BertForMeanClassification  # noqa: E402
from kernelformer.learn import (  # noqa: E402
    AlignedOutputs,
    AlignSchedule,
    Ball,
    Box,
    Dynamics,
    Riesz,
    Schedule,
    Selection,
    align,
    align_and_train,
    alignment_energies,
    center,
    class_targets,
    pair_alignment,
    particles_of,
    train_classifier,
)

MAPS = ["softmaxfeat", "favor", "cos2", "elu_projected", "softplus", "sigmoid2", "porf_softplus", "flexformer_n"]
STEADY = Dynamics(step_size=3.0, repulsion=Riesz(), repulsion_weight=1e-3, domain=Ball(8.0), max_drift=1.0)
NORMALISED = AlignedOutputs(normalised=True)


@pytest.fixture
def classifier() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=37,
        max_position_embeddings=40,
        initializer_range=0.3,
    )
    return BertForMeanClassification(config).eval()


@pytest.fixture
def labelled() -> list[dict[str, torch.Tensor]]:
    """Texts of class 1 hold words below 20 twice as often; padded."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for length in (10, 14, 12, 9):
        labels = torch.arange(16) % 2
        ids = torch.randint(1, 50, (16, length), generator=generator)
        marked = torch.rand(16, length, generator=generator) < 0.5 * labels[:, None]
        ids = torch.where(marked, ids % 19 + 1, ids)
        mask = torch.ones_like(ids)
        mask[::3, length - 3 :] = 0
        found.append({"input_ids": ids * mask, "attention_mask": mask, "labels": labels})
    return found


def converted(classifier, kernel, *, shared_qk=True, features=8):
    return kf.convert(copy.deepcopy(classifier), kernel, features, shared_qk=shared_qk)


@pytest.mark.parametrize("token_level", [False, True])
@pytest.mark.parametrize("normalised", [False, True])
def test_energies_are_those_of_the_definition(token_level, normalised):
    """Outputs pooled, or not, and every pair written out, in float64."""
    generator = torch.Generator().manual_seed(0)
    out = torch.randn(5, 2, 4, 3, generator=generator, dtype=torch.float64)
    mask = torch.arange(4) < torch.tensor([4, 2, 3, 1, 4])[:, None]
    targets = class_targets(torch.tensor([0, 1, 1, 0, 2]), 3).double()
    found = AlignedOutputs(token_level, normalised)(out, mask, targets)
    for head in range(2):
        rows, labels = [], []
        for text in range(5):
            real = out[text, head, mask[text]]
            rows += list(real) if token_level else [real.mean(0)]
            labels += [targets[text]] * (len(real) if token_level else 1)
        phi, t = torch.stack(rows), torch.stack(labels)
        if normalised:
            phi, t = phi - phi.mean(0), t - t.mean(0)
            gram, wanted = phi @ phi.mT, t @ t.mT
            expected = (gram * wanted).sum() / gram.norm() / wanted.norm()
        else:
            n = len(phi)
            pairs = [(t[i] @ t[j]) * (phi[i] @ phi[j]) for i in range(n) for j in range(n) if i != j]
            expected = torch.stack(pairs).sum() / (n * (n - 1))
        torch.testing.assert_close(found[head], -expected)


@pytest.mark.parametrize("kernel", MAPS)
@pytest.mark.parametrize("objective", [AlignedOutputs(), NORMALISED, AlignedOutputs(token_level=True)], ids=str)
def test_the_drift_through_attention_is_autograd_of_the_reference(classifier, labelled, kernel, objective):
    """One layer by hand in float64 with the O(N²) reference, against the model with the engine."""
    model = converted(classifier, kernel).double()
    batch = {name: value for name, value in labelled[0].items() if name != "labels"}
    targets = center(class_targets(labelled[0]["labels"], 2).double())
    particles = particles_of(model).requires_grad_()
    energies = alignment_energies(model, particles, batch, targets, objective)
    (found,) = torch.autograd.grad(energies[0].sum(), particles)
    assert not found[1].any()  # the first layer does not see the second

    hidden = model.bert.embeddings(batch["input_ids"])
    attention = model.bert.encoder.layer[0].attention.self
    x, v = (y.unflatten(-1, (2, -1)).transpose(1, 2).detach() for y in (hidden, attention.value(hidden)))
    mask, feature_map = batch["attention_mask"].bool(), copy.deepcopy(attention.kernel.feature_map)
    omega = feature_map.omega.detach().clone().requires_grad_()
    own = {"omega": omega}

    def by_hand(function, *arguments):
        class Called(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.map = feature_map

            def forward(self):
                return getattr(self.map, function)(*arguments)

        return torch.func.functional_call(Called(), {f"map.{k}": t for k, t in own.items()}, ())

    out = attend_reference(by_hand("map_q", x), by_hand("map_k", x, None, mask), v, floor=feature_map.floor).out
    (expected,) = torch.autograd.grad(objective(out, mask, targets).sum(), omega)
    assert expected.abs().max() > 0
    torch.testing.assert_close(found[0], expected.mT, rtol=1e-8, atol=1e-12)


def test_later_layers_pull_on_earlier_particles(classifier, labelled):
    model = converted(classifier, "softmaxfeat").double()
    batch = {name: value for name, value in labelled[0].items() if name != "labels"}
    targets = center(class_targets(labelled[0]["labels"], 2).double())
    particles = particles_of(model)

    def energy(moved):
        return alignment_energies(model, moved, batch, targets, NORMALISED)[1].sum()

    moved = particles.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(energy(moved), moved)
    step = torch.zeros_like(particles)
    step[0, 1, 2, 3] = 1e-5
    slope = (energy(particles + step) - energy(particles - step)) / 2e-5
    torch.testing.assert_close(gradient[0, 1, 2, 3], slope.detach(), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("kernel", ["softmaxfeat", "favor", "cos2"])
def test_phase_a_lowers_the_energy_and_moves_particles_alone(classifier, labelled, kernel):
    model = converted(classifier, kernel)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    curve = align(model, labelled, STEADY, AlignSchedule(steps=40), objective=NORMALISED)
    assert sum(energy for _, energy in curve[-4:]) < 1.05 * sum(energy for _, energy in curve[:4]) < 0
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if name.endswith("kernel.feature_map.omega")}
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_norms_and_values_move_when_asked_and_nothing_else(classifier, labelled):
    model = converted(classifier, "softmaxfeat")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    align(model, labelled, STEADY, AlignSchedule(steps=4, also="norms and values"), objective=NORMALISED)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed and all("omega" in name or "LayerNorm" in name or ".value." in name for name in changed)
    assert any(".value." in name for name in changed) and any("LayerNorm" in name for name in changed)


@pytest.mark.parametrize("domain", [Ball(1.5), Box(-0.2, 0.3)], ids=["ball", "box"])
def test_particles_stay_in_the_domain(classifier, labelled, domain):
    model = converted(classifier, "softmaxfeat")
    wild = dataclasses.replace(STEADY, inverse_temperature=1.0, domain=domain)
    align(model, labelled, wild, AlignSchedule(steps=5))
    particles = particles_of(model)
    torch.testing.assert_close(domain.project(particles), particles, rtol=1e-6, atol=0)
    assert particles.std() > 0.01


def test_phase_a_goes_on_to_the_same_bits(classifier, labelled, tmp_path):
    schedule = AlignSchedule(steps=12, also="norms and values", save_steps=5)
    noisy = dataclasses.replace(STEADY, inverse_temperature=1e3)

    class Stops(list):
        def __getitem__(self, index):
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls > 8:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    whole, broken = converted(classifier, "softmaxfeat"), converted(classifier, "softmaxfeat")
    expected = align(whole, labelled, noisy, schedule)
    with pytest.raises(KeyboardInterrupt):
        align(broken, Stops(labelled), noisy, schedule, folder=tmp_path)
    resumed = converted(classifier, "softmaxfeat")
    assert align(resumed, labelled, noisy, schedule, folder=tmp_path) == expected
    assert all(torch.equal(resumed.state_dict()[name], value) for name, value in whole.state_dict().items())


def test_phase_b_leaves_kernels_alone_to_the_bit(classifier, labelled):
    model = converted(classifier, "elu_projected")  # its bias is a parameter, and frozen too
    before = {name: value.clone() for name, value in model.state_dict().items()}
    curve = train_classifier(model, labelled, Schedule(steps=32, learning_rate=5e-3, precision="float32"))
    assert sum(loss for _, loss in curve[-4:]) < 0.9 * sum(loss for _, loss in curve[:4])
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert "classifier.weight" in changed and "bert.embeddings.word_embeddings.weight" in changed
    assert not any(".kernel." in name for name in changed)
    train_classifier(model, labelled, Schedule(steps=2, precision="float32"), train_kernels=True)
    assert not torch.equal(particles_of(model), before_particles(before))


def before_particles(state):
    return torch.stack([value.mT for name, value in state.items() if name.endswith("omega")])


def test_selection_ends_at_the_best_weights(classifier, labelled):
    model = converted(classifier, "softmaxfeat")
    seen = []

    def score(model):
        seen.append(model.classifier.weight.detach().clone())
        return [0.1, 0.9, 0.2][len(seen) - 1]

    train_classifier(model, labelled, Schedule(steps=6, precision="float32"), selection=Selection(score, 2))
    assert len(seen) == 3
    assert torch.equal(model.classifier.weight, seen[1])


def test_both_phases_then_saved_and_loaded(classifier, labelled, tmp_path):
    model = converted(classifier, "softmaxfeat")
    energies, losses = align_and_train(
        model, labelled, STEADY, AlignSchedule(steps=3), Schedule(steps=3, precision="float32"), objective=NORMALISED
    )
    assert len(energies) == len(losses) == 3
    model.eval().save_pretrained(tmp_path)
    again = kf.load(tmp_path)
    with torch.no_grad():
        assert torch.equal(again(**labelled[0]).logits, model(**labelled[0]).logits)


def test_refusals(classifier, labelled):
    with pytest.raises(kf.KernelformerError, match="no converted layer"):
        align(classifier, labelled, STEADY)
    with pytest.raises(kf.KernelformerError, match="Elu has none"):
        align(kf.convert(copy.deepcopy(classifier), "elu"), labelled, STEADY)
    model = converted(classifier, "softmaxfeat")
    with pytest.raises(kf.KernelformerError, match="at least one batch"):
        align(model, [], STEADY)
    with pytest.raises(kf.DataError, match="two classes"):
        align(model, [{**labelled[0], "labels": torch.zeros(16, dtype=torch.int64)}], STEADY)
    with pytest.raises(kf.KernelformerError, match="norms and values"):
        align(model, labelled, STEADY, AlignSchedule(also="everything"))


def test_energies_pull_pairs_as_pair_alignment_does(classifier, labelled):
    """The value of a layer is minus the alignment of its pooled outputs, whatever the kernel."""
    model = converted(classifier, "softmaxfeat")
    kept = []
    kernel = model.bert.encoder.layer[0].attention.self.kernel
    kernel.register_forward_hook(lambda _, __, out: kept.append(out))
    batch = {name: value for name, value in labelled[0].items() if name != "labels"}
    targets = center(class_targets(labelled[0]["labels"], 2))
    with torch.no_grad():
        energies = alignment_energies(model, particles_of(model), batch, targets, AlignedOutputs())
    mask = batch["attention_mask"][:, None, :, None]
    pooled = (kept[0] * mask).sum(2) / mask.sum(2)
    torch.testing.assert_close(energies[0], -pair_alignment(pooled.transpose(0, 1), targets))
