"""lm-evaluation-harness reads a converted decoder with its kernels, and scores it as the model itself does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import kernelformer as kf

TASK = Path(__file__).parents[2] / "examples" / "lm_eval"

pytestmark = pytest.mark.slow


def test_the_task_of_the_examples_runs_offline(tmp_path):
    pytest.importorskip("lm_eval")
    items = [json.loads(line) for line in (TASK / "next_words.jsonl").read_text().splitlines()]
    words = sorted({word for item in items for word in " ".join([item["start"], *item["ends"]]).split()})
    vocabulary = {word: index for index, word in enumerate(["<pad>", "<s>", *words])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", pad_token="<pad>")
    tokenizer.save_pretrained(tmp_path / "model")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
        initializer_range=0.5, pad_token_id=0, bos_token_id=1, eos_token_id=0, max_position_embeddings=64,
    )  # fmt: skip
    model = kf.convert(transformers.LlamaForCausalLM(config).eval(), "elu")
    model.save_pretrained(tmp_path / "model")
    done = subprocess.run(
        [
            sys.executable, "-m", "kernelformer.hf.harness", "run", "--model", "kernelformer", "--model_args",
            f"pretrained={tmp_path / 'model'}", "--tasks", "next_words", "--include_path", ".", "--device", "cpu",
            "--output_path", str(tmp_path / "found"),
        ],
        cwd=TASK, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    (found,) = (tmp_path / "found").rglob("results*.json")
    right = [
        max((0, 1), key=lambda end: _score(model, tokenizer, item["start"], item["ends"][end])) == item["right"]
        for item in items
    ]
    assert json.loads(found.read_text())["results"]["next_words"]["acc,none"] == pytest.approx(sum(right) / len(right))


@torch.no_grad()
def _score(model, tokenizer, start, end):
    ids = tokenizer(f"{start} {end}", return_tensors="pt")["input_ids"]
    logs = model(ids).logits.log_softmax(-1)[0, -2]
    return float(logs[ids[0, -1]])
