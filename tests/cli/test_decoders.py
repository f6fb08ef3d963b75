"""Verbs for decoders, on a tiny one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import kernelformer as kf

WORDS = ["<pad>", "<s>", "</s>", "the", "state", "of", "union", "is", "strong", "and", "free", "people", "law"]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("decoder")
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=37, initializer_range=0.3, pad_token_id=0, bos_token_id=1, eos_token_id=None,
        max_position_embeddings=512,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def speeches(tmp_path_factory) -> Path:
    """30 documents of 60 words, of 10 years."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for index in range(30):
        ids = torch.randint(3, len(WORDS), (60,), generator=generator).tolist()
        rows.append({"text": " ".join(WORDS[i] for i in ids), "year": 1990 + index % 10})
    path = tmp_path_factory.mktemp("data") / "speeches.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_eval_of_teacher_and_student(kernelformer, decoder, speeches, tmp_path, capsys):
    model = kf.convert(transformers.AutoModelForCausalLM.from_pretrained(decoder), "hedgehog", 16, window=4)
    model.save_pretrained(tmp_path / "student")
    transformers.AutoTokenizer.from_pretrained(decoder).save_pretrained(tmp_path / "student")
    found = []
    for name in (decoder, tmp_path / "student"):
        assert kernelformer("eval", name, "--data", speeches, "--max-length", 32, "--json") == 0
        found.append(json.loads(capsys.readouterr().out))
    for result in found:
        low, high = result["likelihood"]["perplexity_ci"]
        assert low <= result["likelihood"]["perplexity"] <= high
        assert result["recall"]["distances"] == [32, 64, 128, 256, 512]
    assert found[0]["likelihood"]["tokens"] == found[1]["likelihood"]["tokens"]
    assert found[0]["likelihood"]["perplexity"] != found[1]["likelihood"]["perplexity"]
    assert kernelformer("eval", decoder, speeches, "--max-length", 32) == 0
    assert "next token right" in capsys.readouterr().out


def test_generate_streams_and_repeats_itself(kernelformer, decoder, capsys):
    texts = []
    for arguments in (["--temperature", 1], ["--temperature", 1], ["--temperature", 1, "--seed", 5], []):
        assert kernelformer("generate", decoder, "--prompt", "the state of", "--max-new-tokens", 20, *arguments) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert len(texts[3].split()) > 3
    assert set(texts[3].split()) <= set(WORDS)


def test_generated_text_as_json(kernelformer, decoder, capsys):
    asked = ("generate", decoder, "--prompt", "the state of", "--max-new-tokens", 5)
    assert kernelformer(*asked) == 0
    streamed = capsys.readouterr().out
    assert kernelformer(*asked, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompt"] == "the state of" and found["tokens"] == 5
    assert found["text"].split() == streamed.split()


@pytest.mark.parametrize("window", [0, 8])
def test_convert_evaluates_by_perplexity(kernelformer, decoder, speeches, tmp_path, window, capsys):
    out = tmp_path / "out"
    arguments = [
        "convert", decoder, "--data", speeches, "-o", out, "--num-features", 16, "--max-length", 32, "--window", window,
        "--distill-steps", 4, "--finetune-steps", 4, "--batch-size", 4, "--group-column", "year",
    ]  # fmt: skip
    assert kernelformer(*arguments, "--dry-run") == 0
    assert "perplexity" in capsys.readouterr().out
    assert not out.exists()
    assert kernelformer(*arguments) == 0
    assert "student over teacher" in capsys.readouterr().out
    record = json.loads((out / "report.json").read_text())
    assert record["evaluation"] is None
    assert record["window"] == window
    assert record["language"]["perplexity_by_stage"].keys() == {"start", "distilled", "finetuned"}
    assert record["data"]["held_out_texts"] == 3
    page = (out / "report.html").read_text()
    assert "Prediction of text" in page
    assert "Embeddings" not in page
    student = kf.load(out)
    assert type(student).__name__ == "LlamaForCausalLM"
    assert all(kernel.window == window for kernel in kf.hf.kernels(student).values())
    assert kernelformer("eval", out, speeches, "--max-length", 32, "--json") == 0


def test_convert_judges_by_the_texts_that_were_named(kernelformer, decoder, speeches, tmp_path):
    """A text that is on both sides is not trained on."""
    lines = speeches.read_text().splitlines()
    test = tmp_path / "test.jsonl"
    test.write_text("\n".join(lines[:5]), encoding="utf-8")
    out = tmp_path / "out"
    code = kernelformer(
        "convert", decoder, "--data", speeches, "--test-data", test, "-o", out, "--kernel", "elu", "--max-length", 32,
        "--finetune", "none", "--distill-steps", 1,
    )  # fmt: skip
    assert code == 0
    record = json.loads((out / "report.json").read_text())
    assert record["data"]["train_texts"] == 25
    assert record["data"]["held_out_texts"] == 5


def test_convert_records_the_layers_that_were_converted(kernelformer, decoder, speeches, tmp_path):
    """Those with a sliding window stay softmax without being asked to."""
    torch.manual_seed(0)
    config = transformers.Gemma3TextConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, intermediate_size=37, query_pre_attn_scalar=8, pad_token_id=0, bos_token_id=1, eos_token_id=None,
        max_position_embeddings=512, sliding_window=6, layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    transformers.Gemma3ForCausalLM(config).save_pretrained(tmp_path / "gemma")
    transformers.AutoTokenizer.from_pretrained(decoder).save_pretrained(tmp_path / "gemma")
    code = kernelformer(
        "convert", tmp_path / "gemma", "--data", speeches, "-o", tmp_path / "out", "--kernel", "elu",
        "--max-length", 32, "--finetune", "none", "--distill-steps", 1,
    )  # fmt: skip
    assert code == 0
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [row["layer"] for row in record["per_layer"]] == [1]
    assert (record["layers"], record["converted"]) == (2, 1)


def test_compare_ranks_by_perplexity(kernelformer, decoder, speeches, tmp_path, capsys):
    code = kernelformer(
        "compare", decoder, speeches, "-o", tmp_path / "out", "--kernels", "elu,hedgehog", "--num-features", 16,
        "--window", 4, "--max-length", 32, "--distill-steps", 2, "--seeds", "0,1", "--json",
    )  # fmt: skip
    assert code == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["kernel"] for row in rows} == {"elu", "hedgehog"}
    assert rows[0]["perplexity"] <= rows[1]["perplexity"]
    assert all(row["cosine"] is None and row["perplexity_spread"] > 0 for row in rows)
    folders = [tmp_path / "out" / f"{rows[0]['kernel']}-{seed}" for seed in (0, 1)]
    kept = [json.loads((folder / "report.json").read_text()) for folder in folders]
    assert [record["window"] for record in kept] == [4, 4]
    found = [[record["language"][who]["perplexity"] for who in ("student", "teacher")] for record in kept]
    assert rows[0]["perplexity"] == pytest.approx((found[0][0] + found[1][0]) / 2)
    assert rows[0]["perplexity_ratio"] == pytest.approx(sum(student / teacher for student, teacher in found) / 2)
    assert kernelformer("compare", decoder, speeches, "-o", tmp_path / "out", "--kernels", "elu", "--num-features", 16,
                        "--window", 4, "--max-length", 32, "--distill-steps", 2) == 0  # fmt: skip
    assert "perplexity" in capsys.readouterr().out


def test_what_is_no_decoder_is_refused(kernelformer, encoder, decoder, speeches, capsys):
    assert kernelformer("eval", encoder, "--data", speeches) == 2
    assert "no decoder" in capsys.readouterr().err
    assert kernelformer("generate", encoder, "--prompt", "a") == 2
    assert "no decoder" in capsys.readouterr().err
    assert kernelformer("generate", decoder, "--prompt", "") == 2
    assert "prompt is empty" in capsys.readouterr().err
    assert kernelformer("generate", decoder, "--prompt", "a", "--temperature", -1) == 2
    assert "temperature" in capsys.readouterr().err


def test_import_gguf_refuses_what_is_no_gguf_file(kernelformer, tmp_path, capsys):
    out = tmp_path / "out"
    assert kernelformer("import-gguf", tmp_path / "absent.gguf", "-o", out) == 2
    assert "no such file" in capsys.readouterr().err
    wrong = tmp_path / "model.gguf"
    wrong.write_bytes(b"PK\x03\x04 a pickle, perhaps")
    assert kernelformer("import-gguf", wrong, "-o", out) == 2
    assert "no GGUF file" in capsys.readouterr().err
    wrong.write_bytes(b"GGUF" + bytes(50))
    assert kernelformer("import-gguf", wrong, "-o", out) == 2
    assert not out.exists()
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    assert kernelformer("import-gguf", wrong, "-o", taken) == 2
    assert "is there already" in capsys.readouterr().err
