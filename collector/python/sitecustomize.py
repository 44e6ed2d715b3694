"""Put before a program's own `sitecustomize` by `stepscope record`.

Waits for PyTorch to be imported, and then has `stepscope_torch` say what it does. A program that never imports it pays for
one comparison an import. The program's own `sitecustomize`, if there is one, runs as it would have.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_OLDEST_PYTHON = (3, 8)


class _WaitsFor:
    """A finder that finds what the others find, and notices that a module was loaded.

    It stays until then: a program may look for a module without importing it, or fail to import it and try again.
    """

    def __init__(self, name, action):
        self._name = name
        self._action = action

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        try:
            spec = self._ask_the_others(path, target)
            if spec is not None:
                self._call_after(spec.loader)
            return spec
        except Exception:
            # Whoever comes next finds it, or says why not.
            return None

    def _ask_the_others(self, path, target):
        for finder in list(sys.meta_path):
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec = find_spec and find_spec(self._name, path, target)
            if spec is not None:
                return spec
        return None

    def _call_after(self, loader):
        """Has a loader tell when it has loaded the module; it is its own self again by then."""
        if "exec_module" in vars(loader):
            return
        exec_module = loader.exec_module

        def load(module):
            vars(loader).pop("exec_module", None)
            exec_module(module)
            if module.__name__ == self._name:
                self._is_loaded(module)

        loader.exec_module = load

    def _is_loaded(self, module):
        try:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._action(module)
        except Exception:
            # The program is not ours to end.
            pass


def _wait_for(name, action):
    sys.meta_path.insert(0, _WaitsFor(name, action))


def _begin(torch):
    _load("stepscope_torch", os.path.join(_HERE, "stepscope_torch", "__init__.py")).begin(torch, _wait_for)


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


if sys.version_info >= _OLDEST_PYTHON:
    _wait_for("torch", _begin)
_run_the_programs_own()
