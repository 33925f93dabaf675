"""Putting the double in place and taking it away."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import weakref

import pytest
import torch

from hipfile_mock import fake
from hipfile_mock.faces.torch import FACE, installed
from hipfile_mock.faces.torch import double as double_module
from hipfile_mock.faces.torch.fits import check_fit
from hipfile_mock.install import FaceUnavailable
from hipfile_sim.machine import Machine


def snapshot():
    """Everything that the double may touch, by identity."""
    owners = {
        "torch": torch,
        "torch._C": torch._C,
        "torch._C._nn": torch._C._nn,
        "torch.cuda": torch.cuda,
        "torch.cuda.graphs": torch.cuda.graphs,
        "torch.storage": torch.storage,
        "torch.version": torch.version,
        "torch.Tensor": torch.Tensor,
        "StorageBase": torch.storage._StorageBase,
        "StreamBase": torch._C._CudaStreamBase,
        "EventBase": torch._C._CudaEventBase,
    }
    return {name: {key: id(value) for key, value in vars(owner).items()} for name, owner in owners.items()}


def test_everything_is_undone():
    torch.zeros(1)
    before = snapshot()
    with Machine(2) as machine, installed(machine):
        torch.ones(2, device="cuda").sum().item()
        torch.cuda.Stream().record_event()
        assert snapshot() != before
    assert snapshot() == before
    assert not torch.cuda.is_available()
    assert torch.cuda.device_count() == 0
    assert torch.version.hip is None
    assert not torch.cuda.is_initialized()
    for failing in (
        lambda: torch.zeros(1, device="cuda"),
        lambda: torch.ones(1).cuda(),
        lambda: torch.cuda.current_stream(),
    ):
        with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
            failing()
    with pytest.raises(RuntimeError):
        torch.cuda.Stream()
    with pytest.raises(RuntimeError):
        torch.empty(1, pin_memory=True)
    assert not torch.ones(1).is_pinned()


def test_undone_when_the_body_raises():
    before = snapshot()
    with pytest.raises(ZeroDivisionError), Machine(1) as machine, installed(machine):
        1 / 0  # noqa: B018
    assert snapshot() == before


def test_installations_nest():
    with Machine(2, schedule="lazy") as outer, installed(outer):
        kept = torch.ones(3, device="cuda")
        stream = torch.cuda.Stream()
        with Machine(1, schedule="lazy") as inner, installed(inner):
            assert torch.cuda.device_count() == 1
            assert not torch.cuda.is_initialized()
            assert torch.ones(2, device="cuda").sum().item() == 2
            with pytest.raises(RuntimeError, match="not of the emulated machine that is in use"):
                kept.sum()
            with pytest.raises(RuntimeError, match="not of this emulated machine"):
                stream.synchronize()
        assert torch.cuda.device_count() == 2
        assert kept.sum().item() == 3
        stream.synchronize()


def test_tensors_that_outlive_the_double_are_harmless():
    with Machine(1) as machine, installed(machine):
        device, pinned = torch.ones(3, device="cuda"), torch.ones(3).pin_memory()
        event = torch.cuda.Event()
        event.record()
    del machine
    assert device.shape == (3,)
    with pytest.raises(RuntimeError, match="lived on an emulated GPU that is gone"):
        device.add_(1)
    assert pinned.sum().item() == 3, "host memory stays as long as somebody has it"
    del device, pinned, event


def test_a_real_build_is_left_alone(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: 1, raising=False)
    before = snapshot()
    with Machine(1) as machine:
        with pytest.raises(FaceUnavailable, match="left alone"):
            FACE.install(machine)
        with pytest.raises(FaceUnavailable, match=r"force=True cannot change that.*CPU build of torch"):
            FACE.install(machine, force=True)
    assert snapshot() == before


def test_a_build_that_does_not_fit_is_left_as_it_was(monkeypatch):
    def no_guard():
        raise double_module.GuardUnavailable("no registry")

    monkeypatch.setattr(double_module, "install_guard", no_guard)
    before = snapshot()
    with (
        Machine(1) as machine,
        pytest.warns(RuntimeWarning, match="does not fit"),
        pytest.raises(FaceUnavailable, match=r"does not fit torch .*: no registry. It was tried with"),
    ):
        FACE.install(machine)
    assert snapshot() == before


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (torch.cuda, "_exchange_device"),
        (torch.cuda.graphs, "_cuda_isCurrentStreamCapturing"),
        (torch._C, "_ensureCUDADeviceGuardSet"),
        (torch.library.Library, "fallback"),
    ],
)
def test_a_torch_of_other_insides_is_named_and_left_as_it_was(monkeypatch, owner, name):
    """Features are asked for, not versions: what another release has renamed is listed before anything is changed."""
    monkeypatch.delattr(owner, name)
    before = snapshot()
    fresh = fake()
    with pytest.warns(RuntimeWarning, match=rf"it has no torch\.\S*{name}\."):
        session = fresh.__enter__()
    assert "does not fit" in session.faces["torch"]
    assert not torch.cuda.is_available()
    fresh.__exit__(None, None, None)
    with (
        pytest.warns(RuntimeWarning, match="does not fit"),
        pytest.raises(FaceUnavailable, match=r"tried with the CPU build of torch 2\.13\.0"),
        fake(faces=["torch"]),
    ):
        pass
    assert snapshot() == before


def test_every_name_that_is_asked_for_is_there():
    check_fit(torch)
    with pytest.raises(FaceUnavailable, match=r"it has no torch\.cuda\.renamed, torch\._C\.gone\."):
        check_fit(torch, ["cuda.renamed", "version.hip", "_C.gone"])


def run(code):
    """Run a program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_torch_is_imported_only_by_the_program():
    out = run("""
        import sys
        from hipfile_sim.machine import Machine
        from hipfile_mock.faces.torch import installed
        with Machine(1) as machine, installed(machine):
            assert "torch" not in sys.modules
        assert not any(type(finder).__name__ == "_Later" for finder in sys.meta_path)
        with Machine(1) as machine, installed(machine):
            import torch
            loader = type(torch.__spec__.loader).__name__
            print(torch.ones(2, device="cuda").sum().item(), loader, torch.cuda.device_count())
        print(torch.cuda.is_available(), "torch" in sys.modules)
    """)
    assert out.splitlines() == ["2.0 SourceFileLoader 1", "False True"]


def test_without_torch_the_error_says_what_to_do():
    out = run("""
        import sys
        sys.path = [path for path in sys.path if "site-packages" not in path or True]
        import importlib.util
        real = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *more: None if name == "torch" else real(name, *more)
        from hipfile_mock.faces.torch import FACE
        from hipfile_mock.install import FaceUnavailable
        try:
            FACE.install(None)
        except FaceUnavailable as error:
            print(error)
    """)
    assert out.startswith("torch is not installed; install its CPU build")


def test_the_process_ends_cleanly_with_tensors_alive():
    out = run("""
        from hipfile_sim.machine import Machine
        from hipfile_mock.faces.torch import FACE
        import torch
        machine = Machine(2)
        FACE.install(machine)
        kept = [torch.ones(3, device="cuda:1"), torch.ones(3).pin_memory(), torch.cuda.Stream(), torch.cuda.Event()]
        kept[3].record()
        loop = [kept]
        loop.append(loop)
        print(kept[0].sum().item())
    """)
    assert out == "3.0"


def test_names_imported_before_still_work():
    from torch.cuda import Event, Stream, current_stream

    with Machine(1, schedule="lazy") as machine, installed(machine):
        stream = Stream()
        event = Event()
        event.record(stream)
        current_stream().wait_event(event)
        assert event.query() in (True, False)


def test_nothing_holds_a_machine_that_is_done():
    def use():
        with Machine(2) as machine, installed(machine):
            tensor = torch.randn(10, 10, device="cuda")
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                (tensor @ tensor)[[1, 2]].cpu()
            tensor.record_stream(stream)
            tensor.to("cpu", non_blocking=True)
        return weakref.ref(machine)

    gone = use()
    gc.collect()
    assert gone() is None
