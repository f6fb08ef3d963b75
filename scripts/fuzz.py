"""Fuzz the readers of configs and checkpoints: ``pip install atheris && python scripts/fuzz.py -max_total_time=60``.

The first byte chooses which of ``config.json`` and ``model.safetensors`` of a tiny converted encoder is replaced by the
rest; ``kernelformer.load`` must read it or raise a KernelformerError. Further arguments are libFuzzer's.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["kernelformer", "transformers.configuration_utils"]):
    import torch
    import transformers

    import kernelformer as kf

NAMES = ("config.json", "model.safetensors")


def main() -> None:
    """Fuzz until libFuzzer stops, or an exception is not ours."""
    logging.disable()
    torch.set_num_threads(1)
    place = Path(tempfile.mkdtemp())
    whole, tried, corpus = place / "whole", place / "tried", place / "corpus"
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    kf.convert(transformers.BertModel(config), "favor", 4).save_pretrained(whole)
    corpus.mkdir()
    for number, name in enumerate(NAMES):
        # What readers decide by stands at the start of a file.
        (corpus / name).write_bytes(bytes([number]) + (whole / name).read_bytes()[:4000])

    def read(data: bytes) -> None:
        if not data:
            return
        shutil.rmtree(tried, ignore_errors=True)
        shutil.copytree(whole, tried)
        (tried / NAMES[data[0] % 2]).write_bytes(data[1:])
        with contextlib.suppress(kf.KernelformerError):
            kf.load(tried)

    arguments: Any = [*sys.argv, "-max_len=5000", "-rss_limit_mb=3000", str(corpus)]
    atheris.Setup(arguments, read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
