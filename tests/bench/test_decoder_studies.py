"""The studies of converted decoders, on a tiny one; what they count, on made-up losses."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

transformers = pytest.importorskip("transformers")
pytest.importorskip("sklearn")

from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

from kernelformer.bench import darkformer_finetuning, decoder_conversion  # noqa: E402
from kernelformer.bench.darkformer_finetuning import (  # noqa: E402
    Run,
    count_spikes,
    finetuning_markdown,
    measure_finetuning,
    steps_to,
)
from kernelformer.bench.decoder_conversion import (  # noqa: E402
    Cell,
    conversion_markdown,
    measure_conversions,
    summarise_conversions,
    trunk,
    window_plots,
)
from kernelformer.bench.rows import Rows  # noqa: E402
from kernelformer.tasks.documents import LanguageTexts  # noqa: E402
from kernelformer.tasks.language import token_blocks  # noqa: E402

WORDS = ["<pad>", "<s>", "the", "state", "of", "union", "is", "strong", "and", "free", "people", "law"]


@pytest.fixture
def tokenizer():
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", pad_token="<pad>")


@pytest.fixture
def decoder():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=37, initializer_range=0.3, pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture
def texts():
    generator = torch.Generator().manual_seed(0)
    rows = [" ".join(WORDS[i] for i in torch.randint(2, 12, (400,), generator=generator)) for _ in range(3)]
    return LanguageTexts(*([row] for row in rows))


def test_conversions_are_kept_and_summed_up(decoder, tokenizer, texts, tmp_path, monkeypatch):
    def run(teacher, tokenizer, train, test, scale, cell):
        figure = 20.0 + 3 * cell.seed + len(cell.kernel) - cell.window
        return {"seconds": 1.0, "perplexity": figure, "accuracy": 0.5, "recall": [0.5, 0.4]}

    monkeypatch.setattr(decoder_conversion, "_run", run)
    scale = dataclasses.replace(decoder_conversion.SCALES["small"], length=32, steps=(1, 2), windows=(4,))
    study = measure_conversions(decoder, tokenizer, texts, scale, 2, Rows(tmp_path / "rows.jsonl", {}))
    monkeypatch.setattr(decoder_conversion, "_run", lambda *_: pytest.fail("a finished row was measured again"))
    again = measure_conversions(decoder, tokenizer, texts, scale, 2, Rows(tmp_path / "rows.jsonl", {}))
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(study))
    rows = {(row["kernel"], row["window"], row["steps"]): row for row in summarise_conversions(study)}
    assert set(rows) == {
        *((kernel, 0, 2) for kernel in decoder_conversion.KERNELS),
        *((kernel, 0, 1) for kernel in ("favor", "darkformer")),
        *((kernel, 4, 2) for kernel in decoder_conversion.KERNELS[2:]),
    }
    assert rows["favor", 4, 2]["seeds"] == 2
    assert rows["favor", 4, 2]["perplexity"] == 22.5
    assert rows["favor", 4, 2]["ratio"] == pytest.approx(22.5 / study["teacher"]["perplexity"])
    assert "| favor |" in conversion_markdown(study)
    assert window_plots(study)["window"].startswith("<svg")


def test_a_conversion_leaves_its_teacher_alone(decoder, tokenizer, texts):
    before = {name: p.clone() for name, p in decoder.named_parameters()}
    blocks = token_blocks(tokenizer, texts.train, 32)
    scale = dataclasses.replace(decoder_conversion.SCALES["small"], layers=2, num_features=8)
    found = decoder_conversion._run(decoder, tokenizer, blocks, blocks, scale, Cell("favor", 4, 2, 0))
    assert found["perplexity"] > 1
    assert all(torch.equal(p, before[name]) for name, p in decoder.named_parameters())


def test_training_the_trunk_trains_the_first_layers_of_the_model(decoder):
    short = trunk(decoder, 2)
    ids = torch.randint(12, (2, 9), generator=torch.Generator().manual_seed(1))
    outputs = decoder(ids, output_hidden_states=True)
    wanted = torch.nn.functional.rms_norm(outputs.hidden_states[2], (32,), eps=decoder.config.rms_norm_eps)
    found = short(ids, use_cache=False).last_hidden_state
    torch.testing.assert_close(found, wanted)
    found.square().sum().backward()
    trained = {name.split(".")[2] for name, p in decoder.named_parameters() if "layers" in name and p.grad is not None}
    assert trained == {"0", "1"}
    assert decoder.model.norm.weight.grad is None


def test_finetuning_is_kept_and_told(decoder, tokenizer, texts, tmp_path, monkeypatch):
    def run(model, tokenizer, train, test, scale, run):
        last = {"softmax": 3.0, "favor": 4.0, "darkformer": 3.5}[run.kernel] + 0.1 * run.seed
        steps = scale.steps if run.factor == 1 else scale.sweep_steps
        losses = [last + 2 * 0.5**step for step in range(steps)]
        if run.kernel == "favor" and run.factor == 30:
            losses[20] += 5.0
        return {"losses": losses, "test_loss": None if (run.kernel, run.num_features) == ("favor", 32) else last}

    monkeypatch.setattr(darkformer_finetuning, "_run", run)
    scale = dataclasses.replace(darkformer_finetuning.SCALES["small"], length=32)
    study = measure_finetuning(decoder, tokenizer, texts, scale, 2, Rows(tmp_path / "rows.jsonl", {}))
    monkeypatch.setattr(darkformer_finetuning, "_run", lambda *_: pytest.fail("a finished row was measured again"))
    again = measure_finetuning(decoder, tokenizer, texts, scale, 2, Rows(tmp_path / "rows.jsonl", {}))
    assert again["runs"] == study["runs"]
    tables = finetuning_markdown(study).split("\n\n")
    assert "| all weights | 3.050 ± 0.071 | 4.050 ± 0.071 | 3.550 ± 0.071 | 50% | 8, 8 of 30 |" in tables[0]
    assert "| × 30 | 2 in 32 steps | 4.050 ± 0.071 | 0 in 32 steps | 3.550 ± 0.071 |" in tables[1]
    assert "| 32 | diverged | 3.550 ± 0.071 |" in tables[2]


def test_what_is_trained_follows_the_mode(decoder, tokenizer, texts):
    blocks = token_blocks(tokenizer, texts.train, 32)
    scale = dataclasses.replace(darkformer_finetuning.SCALES["small"], layers=2, steps=3)
    found = [
        darkformer_finetuning._run(decoder, tokenizer, blocks, blocks, scale, Run("darkformer", mode, 8, 1, 0))
        for mode in ("all", "qkv")
    ]
    assert found[0]["losses"][0] == found[1]["losses"][0]
    assert found[0]["losses"][1:] != found[1]["losses"][1:]
    assert len(found[0]["losses"]) == 3


def test_spikes_are_a_nat_above_the_median_before():
    calm = [3.0 - 0.01 * step for step in range(40)]
    assert count_spikes(calm) == 0
    jumps = [*calm[:20], 3.7, *calm[20:30], float("nan"), *calm[30:]]
    assert count_spikes(jumps) == 1
    assert count_spikes([*calm, 3.9]) == 1
    assert count_spikes([9.0, *calm[:10]]) == 0


def test_steps_to_a_loss_take_the_mean_of_eight():
    losses = [float(10 - step) for step in range(11)]
    assert steps_to(losses, 6.5) == 8
    assert steps_to(losses, 5.5) == 9
    assert steps_to(losses, 0.0) is None
