"""Has `torch.compile` run our code as it is: it would try to compile whatever runs beside a graph."""

import inspect


def hidden(function):
    """A function that `torch.compile` takes into no graph."""
    function._torchdynamo_disable = True
    return function


def hide(modules, eval_frame):
    """Hides all code of some modules from the compiler, once that is there."""
    skip_code = getattr(eval_frame, "skip_code", None)
    if skip_code is not None:
        for code in _codes(modules):
            skip_code(code)


def _codes(modules):
    found = []
    for module in modules:
        for thing in list(vars(module).values()):
            functions = vars(thing).values() if inspect.isclass(thing) else [thing]
            found += [function.__code__ for function in functions if inspect.isfunction(function)]
    for code in found:
        yield code
        found += [constant for constant in code.co_consts if inspect.iscode(constant)]
