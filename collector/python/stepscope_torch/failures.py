"""What the program raises and nobody catches."""

import functools
import sys
import traceback

# Frames in files of these folders are not the program's own, and neither are ours.
OTHERS = ("site-packages", "dist-packages", "<frozen ", "stepscope_torch")


def watch(raised):
    """Calls `raised` with what is raised and not caught, in one line. Python prints it as ever."""
    original = sys.excepthook

    @functools.wraps(original)
    def excepthook(kind, value, trace):
        try:
            raised(_line(kind, value, trace))
        except Exception:
            # The program's own failure is what counts.
            pass
        return original(kind, value, trace)

    sys.excepthook = excepthook


def _line(kind, value, trace):
    """The type and the first words of what is raised, and the program's innermost line on the way there."""
    name = kind.__name__ if kind.__module__ in ("builtins", "__main__") else "%s.%s" % (kind.__module__, kind.__qualname__)
    said = next((words.strip() for words in str(value).splitlines() if words.strip()), "")
    line = "%s: %s" % (name, said) if said else name
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if not any(other in frame.filename for other in OTHERS)] or frames
    return "%s (%s:%s in %s)" % (line, own[-1].filename, own[-1].lineno, own[-1].name) if own else line
