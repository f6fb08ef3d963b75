"""The options that verbs share, with one text of help each, and the settings that several verbs are made of."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from kernelformer.errors import KernelformerError

__all__ = [
    "AlignSettings",
    "ClassifierSettings",
    "CompareSettings",
    "ConvertSettings",
    "Data",
    "DistillSteps",
    "DryRun",
    "FinetuneSteps",
    "NumFeatures",
    "Output",
    "Overwrite",
    "OwnKernel",
    "TextColumn",
    "TextSettings",
    "TrainSettings",
    "events",
    "parse_numbers",
    "parse_options",
]

_TEXTS, _TRAINING, _DYNAMICS = "Texts", "Training", "Dynamics of the particles"

Data = Annotated[
    list[str],
    typer.Option(help="Text: .txt, .jsonl, .csv or .tsv, also .gz and .bz2, or a data set's name. Repeatable."),
]
DistillSteps = Annotated[int, typer.Option(help="Steps of layer-wise distillation.", rich_help_panel=_TRAINING)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, say what would be done, and stop.")]
FinetuneSteps = Annotated[int, typer.Option(help="Steps of training the student.", rich_help_panel=_TRAINING)]
NumFeatures = Annotated[int | None, typer.Option(help="Features M of the kernel; its own default if left out.")]
Output = Annotated[str, typer.Option("--output", "-o", help="The folder to write.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a finished run in the output folder.")]
OwnKernel = Annotated[str | None, typer.Option(help="module:Class, where the model has a kernel of yours.")]
TextColumn = Annotated[str, typer.Option(help="Column that holds the text.", rich_help_panel=_TEXTS)]

_BatchSize = Annotated[int, typer.Option(help="Texts a step.", rich_help_panel=_TRAINING)]
_Finetune = Annotated[
    str, typer.Option(help="What to train after the kernels: none, kernels, qkv or all.", rich_help_panel=_TRAINING)
]
_GroupColumn = Annotated[
    str | None, typer.Option(help="Column whose groups are held out whole.", rich_help_panel=_TEXTS)
]
_HeldOut = Annotated[
    int | None, typer.Option(help="Texts to hold out; a tenth, at most 1,000, if left out.", rich_help_panel=_TEXTS)
]
_KeepLabels = Annotated[
    list[str], typer.Option("--keep-label", help="Use only rows with this label. Repeatable.", rich_help_panel=_TEXTS)
]
_Layers = Annotated[str | None, typer.Option(help="Layers to convert, as 0,2,5; all if left out.")]
_MaxLength = Annotated[int, typer.Option(help="Tokens a text is cut to.", rich_help_panel=_TEXTS)]
_Option = Annotated[list[str], typer.Option(help="name=value for the kernel's constructor. Repeatable.")]
_Precision = Annotated[str, typer.Option(help="auto, float32 or bfloat16.", rich_help_panel=_TRAINING)]
_ProbeColumn = Annotated[
    str | None, typer.Option(help="Column with labels, for a linear probe.", rich_help_panel=_TEXTS)
]
_Tensorboard = Annotated[
    bool,
    typer.Option(
        "--tensorboard", help="Write loss curves for TensorBoard to OUTPUT/events.", rich_help_panel=_TRAINING
    ),
]
_Window = Annotated[int, typer.Option(help="Decoders: exact softmax over the last so many tokens, the kernel before.")]


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """What is asked of every run that reads a model and texts and writes a model folder."""

    model: str
    data: Data = field(default_factory=list)
    output: str
    kernel: str | None
    num_features: NumFeatures = None
    option: _Option = field(default_factory=list)
    layers: _Layers = None
    text_column: TextColumn = "text"
    label_column: str | None
    group_column: _GroupColumn = None
    keep_labels: _KeepLabels = field(default_factory=list)
    held_out: _HeldOut = None
    max_length: _MaxLength = 128
    batch_size: _BatchSize
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the split, fresh weights, draws of kernels and the order of texts.", rich_help_panel=_TRAINING
        ),
    ] = 0

    @property
    def own_kernel(self) -> str | None:
        """``kernel``, where it is "module:Class"."""
        return self.kernel if self.kernel is not None and ":" in self.kernel else None

    @property
    def kernel_options(self) -> dict[str, Any]:
        """``option``, read."""
        return parse_options(self.option)

    @property
    def layer_numbers(self) -> list[int] | None:
        """``layers``, read."""
        return None if self.layers is None else parse_numbers("--layers", self.layers)


@dataclass(frozen=True, kw_only=True)
class ConvertSettings(TextSettings):
    """Everything that decides the result of a conversion."""

    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Folder or hub name of a Hugging Face encoder or decoder.")
    ]
    output: Output = "converted"
    kernel: Annotated[str, typer.Option(help='A kernel ("kernelformer list" names them), or module:Class.')] = (
        "hedgehog"
    )
    label_column: _ProbeColumn = None
    batch_size: _BatchSize = 32
    test_data: Annotated[
        list[str], typer.Option(help="Text to judge by, in the place of held-out texts.", rich_help_panel=_TEXTS)
    ] = field(default_factory=list)
    window: _Window = 0
    max_positions: Annotated[
        int | None, typer.Option(help="Stretch an encoder's table of positions to so many tokens.")
    ] = None
    finetune: _Finetune = "all"
    distill_steps: DistillSteps = 150
    finetune_steps: FinetuneSteps = 1000
    learning_rate: Annotated[
        float, typer.Option(help="Peak rate of the model's weights.", rich_help_panel=_TRAINING)
    ] = 3e-4
    kernel_learning_rate: Annotated[
        float | None,
        typer.Option(help="Peak rate of kernels; the kernel's own if left out.", rich_help_panel=_TRAINING),
    ] = None
    precision: _Precision = "auto"
    measure: Annotated[bool, typer.Option(help="Measure time and memory of teacher and student.")] = True
    tensorboard: _Tensorboard = False


@dataclass(frozen=True, kw_only=True)
class CompareSettings(ConvertSettings):
    """What all conversions of a comparison share; kernel and seed are those of each."""

    DECIDED: ClassVar[tuple[str, ...]] = ("kernel", "option", "seed", "measure")
    output: Output = "compared"
    num_features: Annotated[int, typer.Option(help="Features M of every kernel whose width is free.")] = 64
    finetune: _Finetune = "none"
    measure: bool = False


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings(TextSettings):
    """What ``align`` and ``train`` are both asked."""

    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Folder or hub name of a classifier or encoder, converted or not.")
    ]
    label_column: Annotated[str, typer.Option(help="Column with the class of each text.", rich_help_panel=_TEXTS)]
    pair_column: Annotated[
        str | None, typer.Option(help="Column of a second text, to classify pairs.", rich_help_panel=_TEXTS)
    ] = None
    held_out: Annotated[
        int | None,
        typer.Option(
            help="Texts to test on, and as many to select by; a tenth, at most 1,000, if left out.",
            rich_help_panel=_TEXTS,
        ),
    ] = None
    batch_size: _BatchSize = 64
    fresh: Annotated[
        str | None, typer.Option(help="small: a new classifier of two layers; of MODEL the tokenizer alone.")
    ] = None
    shared_qk: Annotated[
        bool,
        typer.Option(
            "--shared-qk", help="Queries and keys are the input of the layer, cut into heads; their projections go."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class AlignSettings(ClassifierSettings):
    """Everything that decides what ``align`` makes."""

    output: Output = "aligned"
    kernel: Annotated[
        str | None, typer.Option(help="A kernel with projections; softmaxfeat where MODEL has none yet.")
    ] = None
    steps: Annotated[int, typer.Option(help="Steps of the dynamics.", rich_help_panel=_DYNAMICS)] = 300
    level: Annotated[
        str, typer.Option(help="What aligns: sequence (mean-pooled outputs) or token.", rich_help_panel=_DYNAMICS)
    ] = "sequence"
    normalised: Annotated[
        bool,
        typer.Option(
            help="Centred alignment, blind to the size of outputs; or the paper's sum over pairs.",
            rich_help_panel=_DYNAMICS,
        ),
    ] = True
    also: Annotated[
        str, typer.Option(help='What moves besides: nothing, or "norms and values".', rich_help_panel=_DYNAMICS)
    ] = "nothing"
    learning_rate: Annotated[float, typer.Option(help="Rate of norms and values.", rich_help_panel=_TRAINING)] = 1e-3
    step_size: Annotated[
        float, typer.Option(help="η of the dynamics (the paper's: 2e-3).", rich_help_panel=_DYNAMICS)
    ] = 10.0
    inverse_temperature: Annotated[
        float, typer.Option(help="β (the paper's: 50); inf is without noise.", rich_help_panel=_DYNAMICS)
    ] = 1e6
    exponent: Annotated[
        float, typer.Option(help="s of the repulsion; 0 is logarithmic.", rich_help_panel=_DYNAMICS)
    ] = 0.0
    repulsion_weight: Annotated[float, typer.Option(help="λ; 0 is without repulsion.", rich_help_panel=_DYNAMICS)] = (
        1e-3
    )
    max_norm: Annotated[
        float, typer.Option(help="Radius of the ball of particles (the paper's: 1.5).", rich_help_panel=_DYNAMICS)
    ] = 12.0
    max_drift: Annotated[
        float, typer.Option(help="What a particle's drift is clipped to (the paper's: 10).", rich_help_panel=_DYNAMICS)
    ] = 0.1
    tolerance: Annotated[
        float, typer.Option(help="Stop when particles move less in a step; 0 never does.", rich_help_panel=_DYNAMICS)
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class TrainSettings(ClassifierSettings):
    """Everything that decides what ``train`` makes."""

    output: Output = "trained"
    kernel: Annotated[
        str | None, typer.Option(help="Convert to this kernel first (softmax too); MODEL's own attention if left out.")
    ] = None
    epochs: Annotated[
        int, typer.Option(help="Passes through the training texts; the best one is kept.", rich_help_panel=_TRAINING)
    ] = 3
    learning_rate: Annotated[float, typer.Option(help="Peak rate of the weights.", rich_help_panel=_TRAINING)] = 1e-3
    train_kernels: Annotated[
        bool,
        typer.Option(
            "--train-kernels", help="Train kernels as well; they are frozen if not.", rich_help_panel=_TRAINING
        ),
    ] = False
    kernel_learning_rate: Annotated[float, typer.Option(help="Peak rate of kernels.", rich_help_panel=_TRAINING)] = 1e-2
    precision: _Precision = "auto"
    tensorboard: _Tensorboard = False


def events(settings: TextSettings) -> Path | None:
    """Where a run writes its loss curves for TensorBoard; None where it is not asked to, or has none."""
    asked = isinstance(settings, ConvertSettings | TrainSettings) and settings.tensorboard
    return Path(settings.output) / "events" if asked else None


def parse_options(given: list[str]) -> dict[str, Any]:
    """["floor=0.1", "phase=True"] -> {"floor": 0.1, "phase": True}; a value that is no Python literal is a string."""
    parsed: dict[str, Any] = {}
    for item in given:
        name, separator, value = item.partition("=")
        if not separator or not name.isidentifier():
            raise KernelformerError(f"--option is name=value, got {item!r}")
        try:
            parsed[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parsed[name] = value
    return parsed


def parse_numbers(name: str, given: str) -> list[int]:
    """ "0,2,5" -> [0, 2, 5]; ``name`` is the option's, for the error."""
    try:
        return [int(part) for part in given.split(",")]
    except ValueError as error:
        raise KernelformerError(f"{name} is numbers with commas, as 0,2,5, got {given!r}") from error
