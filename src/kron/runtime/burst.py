"""A burst: thousands are started at once, and the interpreter is set up for it as long as that lasts."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# How long a thread keeps the interpreter while another one waits for it. The store's thread needs it for
# moments only, between two statements; with the usual 5 ms it would wait longer than it works.
SWITCH_S = 0.00005


class _Usual:
    """How many bursts are under way, and how the interpreter was set up before the first of them."""

    bursts = 0
    collects = False
    switch_s = 0.0


@contextmanager
def burst() -> Iterator[None]:
    """Let threads take turns quickly, and the garbage collector rest.

    A burst makes much that lives on for a moment and nothing to collect. Everything is left as it was found.
    """
    if _Usual.bursts == 0:
        _Usual.collects, _Usual.switch_s = gc.isenabled(), sys.getswitchinterval()
        gc.disable()
        sys.setswitchinterval(min(SWITCH_S, _Usual.switch_s))
    _Usual.bursts += 1
    try:
        yield
    finally:
        _Usual.bursts -= 1
        if _Usual.bursts == 0:
            sys.setswitchinterval(_Usual.switch_s)
            if _Usual.collects:
                gc.enable()
