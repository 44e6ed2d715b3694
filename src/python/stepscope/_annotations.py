"""What a training script says of itself: steps, phases, tokens and its model.

Whether they are recorded is known when this module is imported: ``stepscope record`` says so in the environment. Where they
are not, each of these functions returns at once.
"""

import functools
import json
import logging
import math
import os
from typing import Any, Callable, Dict, Mapping, Optional, Set, Tuple, TypeVar, Union, cast, overload

from . import _library

_log = logging.getLogger("stepscope")
_recorded = _library.load()

_F = TypeVar("_F", bound=Callable[..., Any])


class Annotation:
    """A step or a phase, as a context manager or a decorator."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        pass

    def __call__(self, function: _F) -> _F:
        return function


class _Nothing(Annotation):
    """What is not recorded. A training loop has it in every step, so it takes as little time as can be.

    A function of C takes less time than one of Python. This one returns an empty text, whatever it is given.
    """

    __slots__ = ()
    __enter__ = "".format  # type: ignore[assignment]
    __exit__ = "".format  # type: ignore[assignment]


class _Recorded(Annotation):
    __slots__ = ("_begin", "_argument")

    def __init__(self, begin: Callable[[Any], None], argument: Any) -> None:
        self._begin = begin
        self._argument = argument

    def __enter__(self) -> None:
        self._begin(self._argument)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if _recorded is not None:
            _recorded.end()

    def __call__(self, function: _F) -> _F:
        @functools.wraps(function)
        def annotated(*arguments: Any, **named: Any) -> Any:
            with self:
                return function(*arguments, **named)

        return cast(_F, annotated)


_NOTHING = _Nothing()
# What the library takes for the next step, and the last one that it can count.
_NEXT = -1
_LAST = 2**31 - 1


@overload
def step(number: Optional[int] = None) -> Annotation: ...


@overload
def step(number: _F) -> _F: ...


def step(number: Any = None) -> Any:
    """One step of the training, from its data to its optimizer.

    >>> for i, batch in enumerate(loader):
    ...     with stepscope.step(i):
    ...         train(batch)

    Without a number it is the one after the last, which suits a decorator:

    >>> @stepscope.step
    ... def train(batch): ...

    These numbers are the program's own: they come before those of NVTX ranges and before steps that are inferred from
    PyTorch's optimizers. A step inside of a step is a range.
    """
    if callable(number):
        return step()(number)
    if _recorded is None:
        return _NOTHING
    return _Recorded(_recorded.begin_step, _NEXT if number is None else _step_number(number))


def _step_number(number: Any) -> int:
    try:
        counted = int(number)
    except (TypeError, ValueError, OverflowError):
        counted = -1
    if 0 <= counted <= _LAST:
        return counted
    _warn("%r is not the number of a step; it counts as the next one" % (number,))
    return _NEXT


_warned: Set[str] = set()


def _warn(problem: str) -> None:
    """Says what is wrong, once. The training goes on."""
    if problem not in _warned and len(_warned) < 100:
        _warned.add(problem)
        _log.warning("stepscope: %s", problem)


def phase(name: str) -> Annotation:
    """A phase of a step: forward, backward, optimizer, data, evaluation, checkpoint or recompute.

    >>> with stepscope.phase("forward"):
    ...     loss = model(batch)

    Under ``stepscope record``, PyTorch says itself when its backward pass and its optimizers run. Any other name is a range
    in the timeline.
    """
    if callable(name):
        raise TypeError('a phase needs a name: @stepscope.phase("forward")')
    if _recorded is None:
        return _NOTHING
    return _Recorded(_recorded.begin_phase, str(name))


def tokens(count: float, replicas: int = 1) -> None:
    """Adds to the tokens of this step, from which tokens per second and MFU follow.

    Figures are of the whole job. So count all of its tokens, or the tokens of this rank and how many replicas of the model
    train on as many each: the world size of a data-parallel job, and less where ranks share a replica (tensor or pipeline
    parallelism). Call it inside of ``step``, once, or for each micro-batch.

    >>> stepscope.tokens(batch["input_ids"].numel(), replicas=torch.distributed.get_world_size())
    """
    if _recorded is None:
        return
    try:
        total = float(count) * float(replicas)
    except (TypeError, ValueError, OverflowError):
        total = math.nan
    if math.isfinite(total) and total >= 0:
        _recorded.tokens(total)
    else:
        _warn("%r tokens on %r replicas cannot be counted" % (count, replicas))


def loss(value: float) -> None:
    """The loss, as often as it is known. One that is no number is an incident of the run.

    >>> stepscope.loss(loss.item())

    A tensor that is still being computed makes the program wait for it: say what the program reads anyway.
    """
    if _recorded is None:
        return
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        _warn("%r is no loss" % (value,))
        return
    _recorded.loss(number)


def model(
    config: Union[None, Mapping[str, Any], str, "os.PathLike[str]", Any] = None,
    *,
    seq_len: Optional[int] = None,
    name: Optional[str] = None,
    layers: Optional[int] = None,
    hidden: Optional[int] = None,
    heads: Optional[int] = None,
    kv_heads: Optional[int] = None,
    head_dim: Optional[int] = None,
    ffn: Optional[int] = None,
    gated: bool = True,
    vocabulary: Optional[int] = None,
    tied_embeddings: bool = False,
    experts: Optional[Tuple[int, int]] = None,
) -> None:
    """Describes the model that is trained, so that MFU is known: a Hugging Face configuration, or its sizes.

    >>> stepscope.model(AutoConfig.from_pretrained("meta-llama/Llama-3.2-1B"), seq_len=4096)
    >>> stepscope.model("checkpoints/mine/config.json", seq_len=4096)
    >>> stepscope.model(layers=12, hidden=768, heads=12, ffn=3072, gated=False, vocabulary=50304, seq_len=1024)

    ``seq_len`` is the number of tokens in a sequence, without which the FLOPs of attention are not known. ``gated`` is
    whether the feed-forward network has a third matrix, as SwiGLU does. ``experts`` is how many there are in a layer, and
    how many a token goes through. A later call replaces an earlier one. A model that is not understood logs a warning.
    """
    if _recorded is None:
        return
    try:
        sizes: Dict[str, Any] = {
            "name": name,
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
            "ffn": ffn,
            "vocabulary": vocabulary,
        }
        if config is None:
            described = {key: value for key, value in sizes.items() if value is not None}
            described.update(feed_forward="gated" if gated else "plain", tied_embeddings=tied_embeddings)
            if experts is not None:
                described["experts"] = {"count": experts[0], "top_k": experts[1]}
            text = json.dumps(described)
        else:
            text = _configuration(config)
        why = _recorded.model(text, int(seq_len or 0))
    except Exception as error:  # The training goes on.
        why = "%s: %s" % (type(error).__name__, error)
    if why is not None:
        _warn("MFU will not be known: %s" % why)


def _configuration(config: Any) -> str:
    """A configuration as JSON: it is a dict, has one, or is in a file."""
    if isinstance(config, (str, os.PathLike)):
        path = os.fspath(config)
        path = os.path.join(path, "config.json") if os.path.isdir(path) else path
        with open(path, encoding="utf-8") as file:
            return file.read()
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    # Of what JSON has no word for, such as a data type, nothing is needed.
    return json.dumps(config, default=str)
