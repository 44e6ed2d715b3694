"""Whether the loss is a number, without the program waiting for it.

What a backward pass begins from is copied to the host when the device comes to it, and looked at when the next one begins, if
it is there by then. It may be scaled, so only that it is no number is told. Where steps are short not every one is looked at.
"""

from collections import deque
from math import isfinite
from time import perf_counter_ns

# So many are waited for at most: a host that is further ahead of its device leaves some out.
MOST = 16
# After taking one, so many times as long passes before another is taken.
REST = 100


class Losses:
    """Looks at what backward passes begin from."""

    def __init__(self, torch, lost):
        self._torch = torch
        self._lost = lost
        self._waiting = deque()
        self._free = []
        self._next = 0

    def follow(self, roots):
        """Takes what a backward pass begins from, and tells of what has come since; not while it rests."""
        began = perf_counter_ns()
        if began >= self._next:
            self._take(_scalar(roots))
            now = perf_counter_ns()
            self._next = now + REST * (now - began)

    def _take(self, root):
        torch = self._torch
        # Whoever asks a device anything while it captures a graph ends that.
        if (root is None and not self._waiting) or torch.cuda.is_current_stream_capturing():
            return
        self.look()
        if root is None or len(self._waiting) >= MOST:
            return
        # On the stream on which it is computed, which another device than the current one may have.
        with torch.cuda.device(root.device), torch.no_grad():
            place, copied = self._place(root)
            place.copy_(root, non_blocking=True)
            copied.record()
        self._waiting.append((perf_counter_ns(), place, copied, root.device))

    def look(self):
        """Tells of those that are no number, of all that have come."""
        while self._waiting and self._waiting[0][2].query():
            began, place, copied, device = self._waiting.popleft()
            loss = place.item()
            if not isfinite(loss):
                self._lost(loss, perf_counter_ns() - began)
            self._free.append((place, copied, device))

    def _place(self, root):
        """Where it is copied to, and what says that it was, which belongs to a device."""
        torch = self._torch
        while self._free:
            place, copied, device = self._free.pop()
            if place.dtype == root.dtype and device == root.device:
                return place, copied
        return torch.empty((), dtype=root.dtype, pin_memory=True), torch.cuda.Event()


def _scalar(roots):
    """The one number that a backward pass begins from, if that is one on a GPU."""
    root = roots[0] if isinstance(roots, (tuple, list)) and len(roots) == 1 else roots
    is_one = getattr(root, "is_cuda", False) and root.numel() == 1 and root.is_floating_point()
    return root.detach().reshape(()) if is_one else None
