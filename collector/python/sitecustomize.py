"""Put before a program's own `sitecustomize` by `stepscope record`.

Waits for PyTorch to be imported, and then has `stepscope_torch` say what it does. A program that never imports it pays for
one comparison an import. The program's own `sitecustomize`, if there is one, runs as it would have.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class _WaitsFor:
    """A finder that finds nothing, and notices that a module is looked for."""

    def __init__(self, name, action):
        self._name = name
        self._action = action

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        try:
            sys.meta_path.remove(self)
            from importlib.util import find_spec

            spec = find_spec(name)
            _call_after(spec.loader, self._action)
            return spec
        except Exception:
            # Whoever comes next finds it, or says why not.
            return None


def _wait_for(name, action):
    sys.meta_path.insert(0, _WaitsFor(name, action))


def _call_after(loader, action):
    """Calls something after a loader has loaded its module; the loader is its own self again by then."""
    exec_module = loader.exec_module

    def load(module):
        del loader.exec_module
        exec_module(module)
        action(module)

    loader.exec_module = load


def _begin(torch):
    try:
        _load("stepscope_torch", os.path.join(_HERE, "stepscope_torch", "__init__.py")).begin(torch, _wait_for)
    except Exception:
        # The program is not ours to end.
        pass


def _load(name, path):
    """Loads a package of ours from its file: this directory is on no path of the program's."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, path, submodule_search_locations=[os.path.dirname(path)])
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _run_the_programs_own():
    """Takes this directory off the path, and runs what would have been found there without it."""
    from importlib.machinery import PathFinder

    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_wait_for("torch", _begin)
_run_the_programs_own()
