"""LoRA through peft beside the kernels: trained, saved, read again and merged."""

from __future__ import annotations

import pytest
import torch
import transformers

import kernelformer as kf

peft = pytest.importorskip("peft")


def _student(window=0):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=37, initializer_range=0.3,
    )  # fmt: skip
    return kf.convert(transformers.LlamaForCausalLM(config).eval(), "hedgehog", 8, window=window)


@pytest.mark.parametrize("window", [0, 4])
def test_adapters_and_kernels_train_save_and_merge(window, tmp_path):
    ids = torch.randint(99, (2, 12), generator=torch.Generator().manual_seed(1))
    model = peft.get_peft_model(
        _student(window), peft.LoraConfig(target_modules=["q_proj", "v_proj"], modules_to_save=["kernel"], r=4)
    )
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    assert any("lora" in name for name in trainable)
    assert any(".kernel." in name for name in trainable)
    assert all("lora" in name or ".kernel." in name for name in trainable)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    losses = []
    for _ in range(8):
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    assert losses[-1] < losses[0]
    with torch.no_grad():
        wanted = model(ids).logits
        model.save_pretrained(tmp_path)
        assert torch.equal(peft.PeftModel.from_pretrained(_student(window), tmp_path)(ids).logits, wanted)
        merged = model.merge_and_unload()
        torch.testing.assert_close(merged(ids).logits, wanted, rtol=1e-4, atol=1e-4)
        merged.save_pretrained(tmp_path / "merged")
        torch.testing.assert_close(kf.load(tmp_path / "merged")(ids).logits, wanted, rtol=1e-4, atol=1e-4)
