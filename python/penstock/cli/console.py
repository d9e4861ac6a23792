"""What all commands share: where they print, how they fail, how JSON looks.

Results go to standard output, everything about the run to standard error. Exit codes: 0 well, 1 failed, 2 wrong use,
124 a deadline passed, 130 interrupted.
"""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

PLAIN_WIDTH = 120  # of a pipe or file, which has no width of its own
CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) != "\n"}


class _Console(Console):
    """Escapes control characters in what it prints, so that no name acts on a terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(segment.text.translate(CONTROL), segment.style)


def _console(stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    return _Console(stderr=stderr, width=width, highlight=False)


def output() -> Console:
    return _console(stderr=False)


def messages() -> Console:
    return _console(stderr=True)


def say(text: str) -> None:
    """One message, which the width of the terminal does not break."""
    messages().print(Text(text), soft_wrap=True)


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON has no NaN and no infinities: they are the strings "nan", "inf", "-inf"."""
    return json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def print_json(value: Any) -> None:
    print(json_text(value, indent=2))


def visible(text: str) -> str:
    """The text; where it has control characters, quoted and escaped, so that none acts on a terminal."""
    return text if text.isprintable() else json.dumps(text)


def fail(message: str, hint: str = "", code: int = 1) -> NoReturn:
    """Says what is wrong and what to do about it, and ends the command."""
    console = messages()
    console.print(Text.assemble(("Error: ", "bold red"), message), soft_wrap=True)
    if hint:
        console.print(Text(hint), soft_wrap=True)
    raise typer.Exit(code)


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(loss: str, yes: bool) -> None:
    """Says what is lost by what the command is about to do, and asks, unless --yes was given."""
    say(loss)
    if yes:
        return
    if not sys.stdin.isatty():
        fail("nothing was done, for there is no terminal to ask on", "Give --yes to do it without being asked.", code=2)
    try:
        agreed = typer.confirm("Go on?", err=True)
    except typer.Abort:  # Ctrl-C, or the end of input
        messages().print("nothing was done")
        raise typer.Exit(130) from None
    if not agreed:
        fail("nothing was done")


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """For every command: errors of the library and of the system become a message instead of a traceback."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except KeyboardInterrupt:
            messages().print("interrupted")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # The reader of a pipe has left (| head); Python would complain again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if not is_expected(error):
                raise
            fail(_said(error), code=124 if isinstance(error, TimeoutError) else 1)

    return guarded


def _said(error: Exception) -> str:
    """Without Python's number of the error."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        reason = os.strerror(error.errno or 0)
        return f"{error.filename}: {error.strerror.replace(reason, reason.lower())}"
    return str(error)


def is_expected(error: Exception) -> bool:
    """An error whose message says all; a traceback would only hide it."""
    from ..workflow import LaunchError, StudyError

    if isinstance(error, StudyError | LaunchError | OSError):
        return True
    import penstock

    library_error = getattr(penstock, "Error", None)
    return library_error is not None and isinstance(error, library_error)
