"""What every verb has: options from a file, answers for people or as JSON, quiet progress, the file that repeats it."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from kernelformer.cli.option_files import read_options, write_options
from kernelformer.tasks.files import plain

__all__ = ["Answer", "Terminal", "listed", "resumable", "verb"]

_PANEL = "Every verb"


@dataclass(frozen=True)
class Answer:
    """What a verb found.

    Attributes:
        data: what ``--json`` prints.
        shown: what is printed without it; text as it is, or tables.
        folder: that was written; the file which repeats the run goes there.
        options: the name of that file.
    """

    data: Any
    shown: tuple[RenderableType, ...] = ()
    folder: Path | None = None
    options: str = "options.toml"


@dataclass(frozen=True)
class Terminal:
    """Where a verb tells its progress: stderr, and nowhere when that is no terminal.

    Attributes:
        progress: tell it; None is whether stderr is a terminal.
        as_json: stdout is for JSON alone.
    """

    progress: bool | None = None
    as_json: bool = False

    @property
    def console(self) -> Console:
        told = sys.stderr.isatty() if self.progress is None else self.progress
        return Console(stderr=True, highlight=False, markup=False, quiet=not told, soft_wrap=True)

    def say(self, line: str) -> None:
        """One line of progress."""
        self.console.print(line)


def verb(function: Callable[..., Answer]) -> Callable[..., None]:
    """``function`` as a typer command, with the options that every verb has.

    A parameter annotated with a dataclass stands for its fields, one option each but for those in its ``DECIDED``; one
    annotated ``Terminal`` is given where to tell progress. Behind MODEL a verb with ``--data`` takes further data.
    """
    signature = inspect.signature(function, eval_str=True)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if is_dataclass(parameter.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if groups.get(name) is Terminal:
            continue
        own = _fields(groups[name]) if name in groups else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        parameters += own
    if any(parameter.name == "data" for parameter in parameters):
        parameters.append(_MORE_DATA)

    @functools.wraps(function)
    def command(context: typer.Context, config: str | None, as_json: bool, progress: bool | None, **given: Any) -> None:
        given = _with_more_data(context, given)
        terminal = Terminal(progress, as_json)
        answer = function(**_gathered(groups, given, terminal))
        if answer.folder is not None:
            write_options(answer.folder / answer.options, str(context.command.name), context, given)
            terminal.say(f"written: {answer.folder} ({answer.options} repeats it)")
        if as_json:
            print(json.dumps(plain(answer.data), indent=1, ensure_ascii=False, allow_nan=False))
        else:
            _show(answer.shown)

    # Paragraphs in one line each: help is broken where the terminal ends.
    command.__doc__ = re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.getdoc(function) or "")
    command.__annotations__ = {}
    command.__signature__ = inspect.Signature([_CONTEXT, *parameters, *_EVERY])  # type: ignore[attr-defined]
    return command


@contextmanager
def resumable(events: Path | None = None) -> Iterator[None]:
    """Leave the terminal to this command, and say how to go on when it is interrupted (exit code 1).

    Args:
        events: where loss curves go for TensorBoard; None writes none.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    from kernelformer.learn import tensorboard

    try:
        with tensorboard(events):
            yield
    except KeyboardInterrupt:
        print("kernelformer: interrupted; the same command goes on from here", file=sys.stderr)
        raise typer.Exit(1) from None


def listed(rows: Mapping[str, object]) -> str:
    """Names and values, a line each, the values below each other."""
    width = max(map(len, rows), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


def _show(parts: Iterable[RenderableType]) -> None:
    console = Console(highlight=False)
    for part in parts:
        # Text is not broken at the width of the terminal: it may be Markdown, or go to a file.
        print(part) if isinstance(part, str) else console.print(part)


def _option(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _fields(settings: type[Any]) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(settings, include_extras=True)
    found = []
    for field in _offered(settings):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        found.append(_option(field.name, hints[field.name], inspect.Parameter.empty if default is MISSING else default))
    return found


def _offered(settings: type[Any]) -> list[Field[Any]]:
    """The fields that are options; a class names those that it decides itself in ``DECIDED``."""
    return [field for field in fields(settings) if field.name not in getattr(settings, "DECIDED", ())]


def _gathered(groups: Mapping[str, Any], given: dict[str, Any], terminal: Terminal) -> dict[str, Any]:
    rest = dict(given)
    arguments: dict[str, Any] = {}
    for name, settings in groups.items():
        arguments[name] = (
            terminal
            if settings is Terminal
            else settings(**{field.name: rest.pop(field.name) for field in _offered(settings)})
        )
    return arguments | rest


def _with_more_data(context: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    more = given.pop("more_data", None)
    if not more:
        return given
    source = context.get_parameter_source("data")
    from_file = source is not None and source.name == "DEFAULT_MAP"
    return given | {"data": [*([] if from_file else given["data"]), *more]}


def _read(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        context.default_map = read_options(path, context)
    return path


_CONTEXT = _option("context", typer.Context)
_MORE_DATA = _option("more_data", Annotated[list[str], typer.Argument(metavar="DATA", help="More of --data.")], [])
_EVERY = [
    _option(
        "config",
        Annotated[
            Path | None,
            typer.Option(
                metavar="FILE",
                is_eager=True,
                callback=_read,
                rich_help_panel=_PANEL,
                help="Options in TOML, YAML or JSON, as max-length = 128; those given here win.",
            ),
        ],
        None,
    ),
    _option(
        "as_json",
        Annotated[bool, typer.Option("--json", rich_help_panel=_PANEL, help="Print the answer as JSON.")],
        False,
    ),
    _option(
        "progress",
        Annotated[
            bool | None,
            typer.Option(rich_help_panel=_PANEL, help="Tell progress on stderr; only a terminal is told if left out."),
        ],
        None,
    ),
]
