"""Hugging Face models with kernel attention: convert, save, load."""

from kernelformer.hf.convert import convert
from kernelformer.hf.load import load
from kernelformer.hf.mean_classifier import BertForMeanClassification
from kernelformer.hf.mean_pairs import BertForMeanPairs
from kernelformer.hf.parallel import split_sequence
from kernelformer.hf.positions import extend_positions
from kernelformer.hf.sites import AttentionSite, find_sites, kernels

__all__ = [
    "AttentionSite",
    "BertForMeanClassification",
    "BertForMeanPairs",
    "convert",
    "extend_positions",
    "find_sites",
    "kernels",
    "load",
    "split_sequence",
]
