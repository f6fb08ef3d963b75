"""kernelformer generate: text from a decoder, token by token."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from kernelformer.cli.options import OwnKernel
from kernelformer.cli.verb import Answer, Terminal, resumable
from kernelformer.errors import KernelformerError

__all__ = ["generate"]


def generate(
    terminal: Terminal,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder or hub name of a decoder, converted or not.")],
    prompt: Annotated[str, typer.Option(help="The text to go on from; - reads stdin.")],
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to add at most.")] = 128,
    temperature: Annotated[float, typer.Option(help="Temperature of sampling; 0 takes the likeliest token.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Sample from the likeliest tokens of this total probability.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of sampling.")] = 0,
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False,
    own_kernel: OwnKernel = None,
) -> Answer:
    """Stream the continuation of a prompt to stdout; a converted model keeps a state of fixed size."""
    if max_new_tokens < 1 or temperature < 0 or not 0 < top_p <= 1:
        raise KernelformerError(
            "max_new_tokens is at least 1, temperature at least 0 and top_p in (0, 1], got "
            f"{max_new_tokens}, {temperature} and {top_p}"
        )
    import torch
    from transformers import TextStreamer

    from kernelformer.hf.read import read_decoder, read_tokenizer

    prompt = sys.stdin.read() if prompt == "-" else prompt
    text = prompt
    with resumable():
        decoder: Any = read_decoder(model, own_kernel=own_kernel, dtype=None)
        tokenizer = read_tokenizer(model)
        if chat:
            text = str(
                tokenizer.apply_chat_template(
                    [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
                )
            )
        inputs = tokenizer(text, return_tensors="pt", add_special_tokens=not chat)
        if inputs["input_ids"].shape[1] == 0:
            raise KernelformerError("the prompt is empty: give at least one token of text")
        torch.manual_seed(seed)
        sampling = {"do_sample": True, "temperature": temperature, "top_p": top_p} if temperature else {}
        streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
        tokens = decoder.generate(
            **inputs,
            max_new_tokens=max_new_tokens,
            pad_token_id=tokenizer.pad_token_id,
            streamer=None if terminal.as_json else streamer,
            **({"do_sample": False} | sampling),
        )
    added = tokens[0, inputs["input_ids"].shape[1] :]
    text = tokenizer.decode(added, skip_special_tokens=True)
    return Answer({"prompt": prompt, "text": text, "tokens": len(added)})
