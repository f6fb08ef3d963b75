"""Files that hold the options of a verb (``--config``), and the one that repeats a run."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from kernelformer.errors import KernelformerError
from kernelformer.tasks.files import write_text

__all__ = ["options_text", "read_options", "read_table", "write_options"]

_NOT_KEPT = {"config", "as_json", "progress", "overwrite", "dry_run", "more_data", "help"}
"""What says how a verb is run, not what it makes; data behind MODEL stand in ``data``."""


def read_options(path: Path, context: typer.Context) -> dict[str, Any]:
    """The options in a TOML, YAML or JSON file, by the names of the verb's parameters.

    A list stands for several of a repeatable option, or for commas; a table for several name=value.

    Raises:
        KernelformerError: the file cannot be read, or holds what the verb does not have.
    """
    known = {_key(parameter): parameter for parameter in context.command.params if parameter.name not in _NOT_KEPT}
    options: dict[str, Any] = {}
    for given, value in read_table(path).items():
        key = str(given).replace("_", "-")
        if key not in known:
            near = difflib.get_close_matches(key, known, n=3)
            raise KernelformerError(
                f"{path}: {context.command.name} has no option {str(given)!r}; "
                + (f"near: {', '.join(near)}" if near else f"there are: {', '.join(known)}")
            )
        if value is not None:
            options[str(known[key].name)] = _value(path, key, value, several=getattr(known[key], "multiple", False))
    return options


def options_text(verb: str, context: typer.Context, given: Mapping[str, Any]) -> str:
    """What :func:`read_options` reads back to ``given``, as TOML; options that are None are left out."""
    lines = [f"# kernelformer {verb} --config THIS_FILE repeats the run, from the folder where it was started."]
    for parameter in context.command.params:
        value = given.get(str(parameter.name))
        if parameter.name not in _NOT_KEPT and value is not None:
            lines.append(f"{_key(parameter)} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def write_options(path: Path, verb: str, context: typer.Context, given: Mapping[str, Any]) -> None:
    """Write :func:`options_text` whole or not at all."""
    write_text(path, options_text(verb, context, given))


def _key(parameter: Any) -> str:
    """ "--max-length" -> "max-length", MODEL -> "model"."""
    longest: str = max(parameter.opts, key=len)
    return longest.lstrip("-").replace("_", "-")


def read_table(path: Path) -> dict[str, Any]:
    """What a TOML, YAML or JSON file of options holds, unchecked."""
    try:
        text = path.read_text(encoding="utf-8")
        found = _parse(path, text)
    except (OSError, UnicodeDecodeError) as error:
        raise KernelformerError(f"cannot read the options in {path}: {error}") from error
    if not isinstance(found, dict):
        raise KernelformerError(
            f"{path} must hold options by name, as max-length = 128; it holds {type(found).__name__}"
        )
    return found


def _parse(path: Path, text: str) -> Any:
    if path.suffix in (".yaml", ".yml"):
        import yaml

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise KernelformerError(f"{path} is not YAML: {error}") from error
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError as error:
            raise KernelformerError(f"{path} is not JSON: {error}") from error
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KernelformerError(f"{path} is not TOML: {error}") from error


def _value(path: Path, key: str, value: Any, *, several: bool) -> Any:
    if isinstance(value, dict) and several:
        return [f"{name}={part}" for name, part in value.items()]
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) for item in items):
        raise KernelformerError(
            f"{path}: {key} must be text, a number, true or false, or a list of those, got {value!r}"
        )
    if several:
        return [str(item) for item in items]
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    # A JSON string is a TOML one, but for the one control character that JSON does not escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)
