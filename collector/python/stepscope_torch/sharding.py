"""What replicas share of a model, where the framework says so."""

import functools

from .hidden import hidden

DEEPSPEED = "deepspeed.runtime.engine"


class Sharding:
    """The stage of ZeRO."""

    def __init__(self, source):
        self._source = source
        self.zero = None

    def watch_deepspeed(self, module):
        """Has DeepSpeed's engines say their stage when they are made."""
        kind = module.DeepSpeedEngine
        original = kind.__init__

        @functools.wraps(original)
        def init(its, *arguments, **named):
            original(its, *arguments, **named)
            self._source.run(self._add, its)

        kind.__init__ = hidden(init)

    def _add(self, engine):
        self.zero = max(self.zero or 0, engine.zero_optimization_stage())
