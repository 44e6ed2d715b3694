"""When the program waits for its next batch."""

import functools
import threading

from . import library as says
from .hidden import hidden


def watch(dataloader, listener, seen):
    """Says when the main thread waits for a batch of a `DataLoader`, and shows each batch to `seen`.

    Other threads may fetch batches ahead of time: nobody waits for them."""
    iterator = dataloader._BaseDataLoaderIter
    original = iterator.__next__
    main = threading.main_thread().ident

    @functools.wraps(original)
    def following(its):
        waits = threading.get_ident() == main
        if waits:
            listener(says.LOADING_BEGINS)
        try:
            batch = original(its)
        finally:
            if waits:
                listener(says.LOADING_ENDS)
        seen(batch)
        return batch

    iterator.__next__ = hidden(following)
