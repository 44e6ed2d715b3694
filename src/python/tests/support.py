"""What tests share: where samples are, what is installed, and programs that are recorded."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import weakref
from pathlib import Path
from typing import Any, Dict

PACKAGE = Path(__file__).resolve().parents[1]
SAMPLES = PACKAGE.parents[1] / "traces" / "samples"


def needs(*modules: str) -> Any:
    """Skips a test where something is not installed."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return unittest.skipIf(bool(missing), "%s is not installed" % ", ".join(missing))


class Recorded:
    """A program that was run under `stepscope record`."""

    def __init__(self, program: str) -> None:
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.run = Path(folder) / "run"
        script = Path(folder) / "program.py"
        script.write_text(program)
        binary = os.environ.get("STEPSCOPE_BIN", "stepscope")
        environment: Dict[str, str] = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        for variable in ("RANK", "WORLD_SIZE"):
            environment.pop(variable, None)
        command = [binary, "record", "--run", str(self.run), "--", sys.executable, str(script)]
        self.done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
