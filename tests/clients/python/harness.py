"""Runs the cases of one client script and says how many passed.

A case is a function registered with `@case`; it asserts. Host and port come from the
command line or from HEATSINK_TEST_HOST and HEATSINK_TEST_PORT. The exit status is
non-zero when a case failed.
"""

import asyncio
import inspect
import os
import sys
import time
import traceback

CASES = []
CASE_BOUND_SECONDS = 30
# So many failures are no case's own fault any more: the rest is not tried.
FAILURES_AT_MOST = 8


def case(function):
    CASES.append(function)
    return function


def address():
    if len(sys.argv) == 3:
        return sys.argv[1], int(sys.argv[2])
    try:
        return os.environ["HEATSINK_TEST_HOST"], int(os.environ["HEATSINK_TEST_PORT"])
    except KeyError:
        sys.exit(f"usage: {sys.argv[0]} HOST PORT")


def until(condition, what, bound_seconds=10):
    """Waits for something that only the server can tell, within a bound."""
    deadline = time.monotonic() + bound_seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {bound_seconds} s: {what}"
        time.sleep(0.002)


async def until_async(condition, what, bound_seconds=10):
    """As `until`, for a condition that is a coroutine."""
    deadline = time.monotonic() + bound_seconds
    while not await condition():
        assert time.monotonic() < deadline, f"still not so after {bound_seconds} s: {what}"
        await asyncio.sleep(0.002)


def run(labels, make_context):
    """Runs every case once per label; `make_context(label)` gives what cases take."""
    passed, failed = 0, 0
    for label in labels:
        for function in CASES:
            try:
                context = make_context(label)
                if inspect.iscoroutinefunction(function):
                    asyncio.run(asyncio.wait_for(function(context), CASE_BOUND_SECONDS))
                else:
                    function(context)
                passed += 1
            except Exception:  # noqa: BLE001 - every failure of a case is reported alike
                failed += 1
                print(f"FAILED {label} {function.__name__}")
                traceback.print_exc(file=sys.stdout)
                if failed == FAILURES_AT_MOST:
                    sys.exit(f"{passed} passed, {failed} failed, the rest not tried")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)
