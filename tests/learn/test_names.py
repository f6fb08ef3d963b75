"""The names of ``kernelformer.learn`` stay what they are, whatever was imported before."""

from __future__ import annotations

import inspect

import pytest

import kernelformer.learn


def test_no_name_is_hidden_by_a_module_of_the_same_name():
    """A submodule, once imported, becomes an attribute of its package, where a lazy name of the same spelling was."""
    pytest.importorskip("transformers")
    for _ in range(2):
        for name in kernelformer.learn.__all__:
            assert not inspect.ismodule(getattr(kernelformer.learn, name)), name
