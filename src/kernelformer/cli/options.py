"""Options that several verbs share, with one text of help each."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "BatchSize",
    "Config",
    "Data",
    "DryRun",
    "GroupColumn",
    "HeldOut",
    "KeepLabel",
    "LabelColumn",
    "Layers",
    "MaxLength",
    "Model",
    "MoreData",
    "NumFeatures",
    "Option",
    "Overwrite",
    "Seed",
    "SharedQk",
    "TextColumn",
]

BatchSize = Annotated[int, typer.Option(help="Texts a step.")]
Config = Annotated[
    str | None,
    typer.Option(help="small: a fresh classifier of two layers, with MODEL's tokenizer alone."),
]
Data = Annotated[
    list[str] | None,
    typer.Option(help="Text: .txt, .jsonl, .csv or .tsv, also .gz and .bz2, or a data set's name. Repeatable."),
]
DryRun = Annotated[bool, typer.Option(help="Check everything, say what would be done, and stop.")]
GroupColumn = Annotated[str | None, typer.Option(help="Column whose groups are held out whole.")]
HeldOut = Annotated[
    int | None,
    typer.Option(help="Texts to test on, and as many to select by; a tenth, at most 1,000, if left out."),
]
KeepLabel = Annotated[
    list[str] | None,
    typer.Option(help="Use only rows with this label. Repeatable."),
]
LabelColumn = Annotated[str, typer.Option(help="Column with the class of each text.")]
Layers = Annotated[str | None, typer.Option(help="Layers to convert, as 0,2,5; all if left out.")]
MaxLength = Annotated[int, typer.Option(help="Tokens a text is cut to.")]
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder or hub name of a classifier or encoder, converted or not.")
]
MoreData = Annotated[
    list[str] | None,
    typer.Argument(help="Further data, after --data.", metavar="[DATA]..."),
]
NumFeatures = Annotated[
    int | None,
    typer.Option(help="Features M of the kernel; its own default if left out."),
]
Option = Annotated[
    list[str] | None,
    typer.Option(help="name=value for the kernel's constructor. Repeatable."),
]
Overwrite = Annotated[bool, typer.Option(help="Replace a finished run in the output folder.")]
Seed = Annotated[int, typer.Option(help="Of the split, fresh weights, the kernel's draws and the order of texts.")]
SharedQk = Annotated[
    bool, typer.Option(help="Queries and keys are the input of the layer, cut into heads; their projections go.")
]
TextColumn = Annotated[str, typer.Option(help="Column that holds the text.")]
