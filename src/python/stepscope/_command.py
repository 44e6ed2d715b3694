"""The ``stepscope`` command: where it is, and what it says."""

import json
import os
import shutil
import subprocess
import sysconfig
from functools import lru_cache
from typing import Any, Dict, List, Optional, Sequence

from ._recording import VARIABLES

_NAME = "stepscope"


class StepscopeError(Exception):
    """What went wrong, and what to do about it.

    >>> try:
    ...     stepscope.analyze("nowhere")
    ... except stepscope.StepscopeError as error:
    ...     print(error.message, error.hint)
    """

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message if hint is None else "%s\nhint: %s" % (message, hint))
        #: What went wrong.
        self.message = message
        #: What to do about it, if there is something.
        self.hint = hint


def executable() -> str:
    """The command: what ``STEPSCOPE_BIN`` names, the first on the path, or the one beside this Python."""
    named = os.environ.get("STEPSCOPE_BIN")
    if named:
        return named
    found = shutil.which(_NAME) or shutil.which(_NAME, path=sysconfig.get_path("scripts"))
    if found is None:
        raise StepscopeError(
            "there is no stepscope command", "install it with `pip install stepscope`, or name it in STEPSCOPE_BIN"
        )
    return found


def run(arguments: Sequence[str], patience: Optional[float] = None, quietly: bool = False) -> str:
    """Runs the command; what it writes. ``quietly`` leaves the processor to others."""
    command: List[str] = [executable(), *arguments]
    if quietly and shutil.which("nice"):
        command = ["nice", "-n", "19", *command]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StepscopeError("stepscope %s took longer than %g s" % (arguments[0], patience or 0)) from None
    except OSError as error:
        raise StepscopeError("cannot run %s: %s" % (command[0], error.strerror or error)) from error
    if done.returncode != 0:
        raise _error(done.stderr.decode("utf-8", "replace"), done.returncode)
    return done.stdout.decode("utf-8", "replace")


def run_json(arguments: Sequence[str], patience: Optional[float] = None, quietly: bool = False) -> Dict[str, Any]:
    """Runs the command; the JSON that it writes."""
    written = run([*arguments, "--format", "json"], patience, quietly)
    try:
        read = json.loads(written)
    except ValueError as error:
        raise StepscopeError("stepscope %s did not write JSON: %s" % (arguments[0], error)) from error
    if not isinstance(read, dict):
        raise StepscopeError("stepscope %s wrote no object" % arguments[0])
    return read


def brief(arguments: Sequence[str]) -> str:
    """What a report says first, as text."""
    if _knows_brief(executable(), arguments[0]):
        return run([*arguments, "--brief"]).rstrip("\n")
    return run(arguments).split("\n\n", 1)[0].rstrip("\n")


@lru_cache(maxsize=None)
def _knows_brief(_of: str, command: str) -> bool:
    return "--brief" in run([command, "--help"])


def _environment() -> Dict[str, str]:
    """The environment of a command that nobody records, and that writes no colors."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return {**kept, "NO_COLOR": "1"}


def _error(said: str, status: int) -> StepscopeError:
    """What the command says on stderr: ``error: ...`` and perhaps ``hint: ...``, each of some lines."""
    parts: Dict[str, List[str]] = {}
    current: Optional[str] = None
    for line in said.splitlines():
        if line.startswith("For more information"):
            break
        for label in ("error", "hint"):
            if line.startswith(label + ": "):
                current, line = label, line[len(label) + 2 :]
        if current is not None:
            parts.setdefault(current, []).append(line.strip())
    message = " ".join(parts.get("error", [])).strip() or "stepscope ended with status %d" % status
    hint = " ".join(parts.get("hint", [])).strip()
    return StepscopeError(message, hint or None)
