"""A host program that is interrupted at every place where Python can be: ``python interrupts.py PREFIX SCENE``.

CPython looks for signals at the start of a function, behind a call and on the way back in a loop. The sweep raises one
at the first such place in the model, in the next run at the second, and so on to the last, so it depends on no clock.
Each time the exception must reach the program, once, as it was raised, and the model must go on.
"""

from __future__ import annotations

import ctypes
import dis
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

LOOKS = {dis.opmap[name] for name in ("RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD") if name in dis.opmap}
MODEL = f"{os.sep}hipfile_sim{os.sep}"
PATIENCE = 30  # seconds for what must happen: a limit for a hang, not a measurement


class Injector:
    """Raises `number` at the `nth` place of a traced call."""

    def __init__(self, nth: int, number: int) -> None:
        self.nth, self.number, self.seen, self.done = nth, number, 0, False
        self._looked: dict[FrameType, bool] = {}

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if MODEL not in frame.f_code.co_filename and frame.f_back not in self._looked:
            return None  # the host program's own
        self._looked.setdefault(frame, False)
        frame.f_trace_opcodes = True
        if event == "opcode":
            looked = self._looked[frame]
            self._looked[frame] = frame.f_code.co_code[frame.f_lasti] in LOOKS
            if looked and not self.done:
                self.seen += 1
                if self.seen == self.nth:
                    self.done = True
                    signal.raise_signal(self.number)  # Python takes a tracer that raises away
        elif event == "return":
            self._looked.pop(frame, None)
        return self


class AtCalls(Injector):
    """Only where functions start: the import of the model has too many other places."""

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename != __file__ and not self.done:
            self.seen += 1
            if self.seen == self.nth:
                self.done = True
                signal.raise_signal(self.number)
        return None


class Alarm(Exception):
    """What a handler of the program raises: an ordinary exception, as timeouts are."""


def alarm(number: int, frame: FrameType | None) -> None:
    raise Alarm("of the host program")


hip: Any = None
hipfile: Any = None


def load(prefix: str) -> None:
    global hip, hipfile
    hip = ctypes.CDLL(os.path.join(prefix, "lib", "libamdhip64.so"))
    hipfile = ctypes.CDLL(os.path.join(prefix, "lib", "libhipfile.so"))
    hipfile.hipFileRead.restype = ctypes.c_ssize_t


# -- what is interrupted --------------------------------------------------------------------------------------------


def memory() -> None:
    pointer = ctypes.c_void_p()
    if hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(4096)) == 0:
        hip.hipMemset(pointer, 1, ctypes.c_size_t(4096))
    hip.hipFree(pointer)


def streams() -> None:
    stream = ctypes.c_void_p()
    if hip.hipStreamCreate(ctypes.byref(stream)) == 0:
        hip.hipStreamSynchronize(stream)
        hip.hipStreamDestroy(stream)


def waiting() -> None:
    """A wait that nothing ends but the interruption."""
    tracer = sys.gettrace()
    sys.settrace(None)
    gate.clear()
    hip.hipLaunchHostFunc(None, hold, None)
    sys.settrace(tracer)
    hip.hipStreamSynchronize(None)


def errors() -> None:
    """Failures: the last error is asked for behind the call."""
    hipfile.hipFileRead(None, None, ctypes.c_size_t(1), ctypes.c_int64(0), ctypes.c_int64(0))
    hip.hipFree(ctypes.c_void_p(12345))
    hip.hipGetLastError()


gate = threading.Event()
hold = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait(PATIENCE) and None)


SCENES = {"memory": memory, "streams": streams, "errors": errors}


# -- the sweep ------------------------------------------------------------------------------------------------------


def interrupted(scene: Callable[[], object], injector: Injector, expected: type[BaseException]) -> bool:
    """Run `scene` with an interruption. False: it has fewer places."""
    came: list[BaseException] = []
    sys._getframe().f_trace_opcodes = True  # CPython 3.12 must know before
    try:
        sys.settrace(injector)
        try:
            scene()
        finally:
            sys.settrace(None)
        if injector.done:
            for _ in range(3):
                time.sleep(0)
    except expected as error:
        came.append(error)
    gate.set()
    if not injector.done:
        assert not came
        return False
    assert len(came) == 1, f"place {injector.nth} of {scene.__name__}: lost"
    assert type(came[0]) is expected
    return True


def still_works(nth: int) -> None:
    """From this thread and from another."""
    codes: list[int] = []

    def use() -> None:
        pointer = ctypes.c_void_p()
        codes.append(hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(64)))
        codes.append(hip.hipFree(pointer))
        codes.append(hip.hipDeviceSynchronize())

    use()
    other = threading.Thread(target=use, daemon=True)
    other.start()
    other.join(PATIENCE)
    assert codes == [0] * 6, f"after place {nth}: {codes}"
    hip.hipGetLastError()


def sweep(
    scene: Callable[[], None],
    most: int = 10_000,
    number: int = signal.SIGINT,
    expected: type[BaseException] = KeyboardInterrupt,
) -> int:
    hip.hipInit(0)
    memory(), streams(), errors()  # what is made by a first call is made
    nth = 0
    while nth < most and interrupted(scene, Injector(nth + 1, number), expected):
        nth += 1
        still_works(nth)
    return nth


def first_call(places: int) -> int:
    """The import of the model, too: each time in a child that has not begun."""
    ends = os.pipe()
    total = AtCalls(0, 0)
    child = os.fork()
    if child == 0:
        interrupted(lambda: hip.hipInit(0), total, KeyboardInterrupt)
        os.write(ends[1], str(total.seen).encode())
        os._exit(0)
    os.waitpid(child, 0)
    seen = int(os.read(ends[0], 20))
    for i in range(places):
        nth = 1 + i * (seen - 1) // places
        child = os.fork()
        if child == 0:
            status = 1
            try:
                assert interrupted(lambda: hip.hipInit(0), AtCalls(nth, signal.SIGINT), KeyboardInterrupt)
                still_works(nth)
                status = 0
            except BaseException:
                traceback.print_exc()
            os._exit(status)
        assert os.waitpid(child, 0)[1] == 0, f"place {nth} of the first call"
    return places


# -- real signals, from another thread ------------------------------------------------------------------------------


def bombarded(times: int) -> int:
    """Signals from another thread, whenever it gets its turn, while the main thread calls and calls."""
    hip.hipInit(0)
    main = threading.main_thread().ident
    go, sent = threading.Semaphore(0), threading.Event()

    def bombard() -> None:
        for i in range(times):
            go.acquire()
            for _ in range(i % 40):
                time.sleep(0)
            signal.pthread_kill(main, signal.SIGINT)  # type: ignore[arg-type]
            sent.set()

    thread = threading.Thread(target=bombard, daemon=True)
    thread.start()
    for i in range(times):
        scene = list(SCENES.values())[i % len(SCENES)]
        try:
            sent.clear()
            go.release()
            while not sent.is_set():
                scene()
            for _ in range(100):
                time.sleep(0)
            raise AssertionError(f"signal {i} during {scene.__name__}: lost")
        except KeyboardInterrupt:
            gate.set()
            sent.wait(PATIENCE)
        still_works(i)
    thread.join(PATIENCE)
    return times


if __name__ == "__main__":
    load(sys.argv[1])
    signal.signal(signal.SIGUSR1, alarm)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started to ignore it
    wanted = sys.argv[2]
    if wanted == "first":
        print(first_call(int(sys.argv[3])))
    elif wanted == "bombarded":
        print(bombarded(int(sys.argv[3])))
    elif wanted == "alarm":
        print(sweep(memory, number=signal.SIGUSR1, expected=Alarm))
    elif wanted == "waiting":
        print(sweep(waiting, 40))
    else:
        print(sweep(SCENES[wanted]))
