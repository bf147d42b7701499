"""Bursts: while thousands of runs start at once, the interpreter is tuned for throughput."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# How long a thread keeps the interpreter while another one waits for it. The store's thread needs it only
# briefly between two statements; with the default of 5 ms it would wait longer than it works.
SWITCH_S = 0.00005


class _Interpreter:
    """The number of active bursts, and the interpreter's settings before the first of them."""

    bursts = 0
    collects = False
    switch_s = 0.0


@contextmanager
def burst() -> Iterator[None]:
    """Switch threads quickly and suspend the garbage collector; restore both afterwards.

    A burst allocates many short-lived objects and no cycles worth collecting.
    """
    if _Interpreter.bursts == 0:
        _Interpreter.collects, _Interpreter.switch_s = gc.isenabled(), sys.getswitchinterval()
        gc.disable()
        sys.setswitchinterval(min(SWITCH_S, _Interpreter.switch_s))
    _Interpreter.bursts += 1
    try:
        yield
    finally:
        _Interpreter.bursts -= 1
        if _Interpreter.bursts == 0:
            sys.setswitchinterval(_Interpreter.switch_s)
            if _Interpreter.collects:
                gc.enable()
