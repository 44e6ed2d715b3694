"""Has PyTorch say which operator launches what, in a step that is looked at, and says which module and line that is in.

PyTorch's profiler can name operators and their shapes in NVTX ranges, which the injected library hears: that is the part of it
that needs neither CUPTI nor memory. Python itself tells where functions begin and end (`sys.monitoring`, from 3.12 on): the one
that all modules are called by, and those of the program if asked for.
"""

import os
import sys
import threading

# The number that a tool has with `sys.monitoring`; others have those below.
TOOL = 4
# The variable that asks for lines of the program, too.
LINES = "STEPSCOPE_LINES"
# Files whose functions are nobody's line of code.
LIBRARIES = ("/torch/", "/lib/python3", "<frozen ", "<string>", "<built-in")


class Operators:
    """Looks at operators when it is asked to, on the thread that trains."""

    def __init__(self, torch, library, roots):
        self._torch = torch
        self._library = library
        self._roots = roots
        self._functions = None
        autograd = torch.autograd
        # As they are before others stand in for them.
        self._enable, self._disable = autograd._enable_profiler, autograd._disable_profiler
        self._thread = None
        self._is_over = False

    def follow(self, wanted):
        """Begins it at the end of a step, or says that it is over."""
        self._is_over = not wanted
        if wanted and self._thread is None:
            self._begin()

    def before_backward(self):
        """Ends it if it is over. The optimizer, where that is known, is within an operator of its own, and PyTorch complains of
        those that end after this."""
        if self._is_over:
            self.end()

    def _begin(self):
        autograd = self._torch.autograd
        if autograd._profiler_enabled():
            return
        settings = (True, False, False, False, False)
        profiler = self._torch._C._profiler
        config = autograd.ProfilerConfig(
            autograd.ProfilerState.NVTX, *settings, profiler._ExperimentalConfig()
        )
        self._library.look(1)
        self._thread = threading.get_ident()
        self._functions = Functions(self._torch, self._library, self._roots())
        self._enable(config, set())

    def end(self):
        """Ends it, if it goes on and this is the thread that it goes on on."""
        if self._thread != threading.get_ident():
            return
        self._thread = None
        try:
            self._disable()
        finally:
            self._functions.end()
            self._library.look(0)


class Functions:
    """Says which modules, and if asked for which functions of the program, a thread is in."""

    def __init__(self, torch, library, roots):
        self._library = library
        self._names = {id(module): name for root in roots for module, name in _named(root)}
        self._call = torch.nn.Module._call_impl.__code__
        self._thread = threading.get_ident()
        # Those that are open of which something was said.
        self._said = []
        self._monitoring = getattr(sys, "monitoring", None)
        if self._monitoring is None or self._monitoring.get_tool(TOOL) is not None:
            self._monitoring = None
            return
        events = self._monitoring.events
        self._monitoring.use_tool_id(TOOL, "stepscope")
        for event, callback in (
            (events.PY_START, self._starts),
            (events.PY_RETURN, self._returns),
            (events.PY_UNWIND, self._unwinds),
        ):
            self._monitoring.register_callback(TOOL, event, callback)
        # Where all functions are watched Python runs slower for a while: for lines only.
        if LINES in os.environ:
            self._monitoring.set_events(TOOL, events.PY_START | events.PY_RETURN | events.PY_UNWIND)
        else:
            self._monitoring.set_local_events(TOOL, self._call, events.PY_START | events.PY_RETURN)
            self._monitoring.set_events(TOOL, events.PY_UNWIND)

    def _starts(self, code, offset):
        if code is self._call:
            module = sys._getframe(1).f_locals.get("self")
            name = self._names.get(id(module)) or type(module).__name__
            self._enter(code, name, "")
        elif any(part in code.co_filename for part in LIBRARIES):
            return self._monitoring.DISABLE
        else:
            self._enter(code, "", "%s:%d %s" % (_short(code.co_filename), code.co_firstlineno, code.co_name))

    def _enter(self, code, module, source):
        if threading.get_ident() == self._thread:
            self._said.append(code)
            self._library.enter(module.encode(), source.encode("utf-8", "replace"))

    def _returns(self, code, offset, value):
        self._leave(code)

    def _unwinds(self, code, offset, error):
        self._leave(code)

    def _leave(self, code):
        if threading.get_ident() == self._thread and code in self._said:
            # What a generator left open goes too.
            while self._said:
                self._library.leave(0)
                if self._said.pop() is code:
                    break

    def end(self):
        """Says no more."""
        if self._monitoring is not None:
            self._monitoring.set_local_events(TOOL, self._call, 0)
            self._monitoring.set_events(TOOL, 0)
            self._monitoring.free_tool_id(TOOL)
        self._library.leave(1)


def _named(root):
    kind = type(root).__name__
    for name, module in root.named_modules():
        yield module, "/".join([kind] + (name.split(".") if name else []))


def _short(file):
    """The last two parts of a path: enough to know a file by."""
    return "/".join(file.rsplit("/", 2)[-2:])
