"""A library that replaces the handlers of signals below Python's, from a thread."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import threading

from interlingua.runtime.ray_serve.signals import kept_signals


async def test_a_handler_of_the_loop_is_called_after_another_was_installed() -> None:
    called = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, called.set)

    def replace() -> None:
        install = ctypes.CDLL(None).signal
        install.argtypes, install.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
        with kept_signals():
            install(int(signal.SIGHUP), 1)  # SIG_IGN

    try:
        await asyncio.to_thread(replace)
        assert threading.current_thread() is threading.main_thread()
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(30):
            await called.wait()
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
