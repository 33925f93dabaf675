"""Sizes, offsets and values in our headers: by the C compiler, and by HIP-Python's own structures and enumerations."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from native_support import run

from hipfile_sim.driver.profiles import get_profile, list_profiles
from hipfile_sim.native import headers, structs
from hipfile_sim.native.build import compiler

STRUCTS = {
    "hipDeviceProp_tR0600": structs.DEVICE_PROP,
    "hipPointerAttribute_t": structs.POINTER_ATTRIBUTE,
    "hipFileDriverProps_t": structs.DRIVER_PROPS,
    "hipFileIOParams_t": structs.BATCH_PARAMS,
    "hipFileIOEvents_t": structs.BATCH_EVENT,
    "hipFileStatsLevel1_t": structs.STATS_L1,
    "hipFileStatsLevel2_t": structs.STATS_L2,
    "hipFileStatsLevel3_t": structs.STATS_L3,
}


def test_layouts_are_the_compilers(native_prefix: Path, tmp_path: Path) -> None:
    lines = ["#include <hip/hip_runtime.h>", "#include <hipfile.h>", "#include <stdio.h>", "int main(void) {"]
    for name, layout in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for member in layout.fields:
            path = member.replace("u.devPtr", "u.batch.devPtr").replace("u.file_offset", "u.batch.file_offset")
            path = path.replace("u.size", "u.batch.size")
            lines.append(f'printf("{name}.{member} %zu\\n", offsetof({name}, {path}));')
    lines.append("return 0; }")
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines))
    program = tmp_path / "layout"
    built = run([*compiler(), "-std=c11", "-pedantic", "-Werror", f"-I{native_prefix}/include", source, "-o", program])
    assert built.returncode == 0, built.stderr
    seen = dict(line.split() for line in run([program]).stdout.splitlines())
    for name, layout in STRUCTS.items():
        assert int(seen[name]) == layout.size, name
        for member, field in layout.fields.items():
            assert int(seen[f"{name}.{member}"]) == field.offset, f"{name}.{member}"


def test_pack_and_unpack() -> None:
    values = {"devPtr_base": 1 << 63, "file_offset": -5, "devPtr_offset": 7, "size": 2**64 - 1}
    data = structs.BATCH_PARAMS.pack(
        {"mode": 1, "opcode": 1, "fh": 9, "cookie": 11, **{f"u.{k}": v for k, v in values.items()}}
    )
    assert len(data) == 64
    back = structs.BATCH_PARAMS.unpack(data)
    assert back == {"mode": 1, "opcode": 1, "fh": 9, "cookie": 11, **{f"u.{k}": v for k, v in values.items()}}
    name = structs.DEVICE_PROP.pack({"name": "x" * 300})[:256]
    assert name == b"x" * 255 + b"\0"


@pytest.mark.parametrize("profile", list_profiles())
def test_headers_compile_alone_and_twice(profile: str, tmp_path: Path) -> None:
    for name, text in headers.render(get_profile(profile)).items():
        assert "@" not in re.sub(r"/\*.*?\*/", "", text, flags=re.S), name
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    body = (
        "#include <hipfile.h>\n#include <hipfile.h>\n#include <hip/hip_runtime_api.h>\n#include <hip/hip_runtime.h>\n"
    )
    for suffix, command in (("c", [*compiler(), "-std=c11", "-pedantic"]), ("cpp", ["g++", "-std=c++17"])):
        source = tmp_path / f"twice.{suffix}"
        source.write_text(body + "int version[] = {HIPFILE_VERSION_MAJOR, HIPFILE_VERSION_MINOR, HIPFILE_BASE_ERR};\n")
        done = run([*command, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{tmp_path}", source])
        assert done.returncode == 0, done.stderr


PROBE = """
import json, re
from rocm.bindings import hip, hipfile
sizes = {name: int(cls().c_sizeof()) for name, cls in {
    "hipDeviceProp_tR0600": hip.hipDeviceProp_t, "hipPointerAttribute_t": hip.hipPointerAttribute_t,
    "hipFileDriverProps_t": hipfile.hipFileDriverProps, "hipFileIOParams_t": hipfile.hipFileIOParams,
    "hipFileIOEvents_t": hipfile.hipFileIOEvents, "hipFileDescr_t": hipfile.hipFileDescr}.items()}
enums = {}
hip_names = ["hipError_t", "hipDeviceAttribute_t", "hipMemcpyKind", "hipMemoryType"]
for module, names in ((hipfile, dir(hipfile)), (hip, hip_names)):
    for name in names:
        cls = getattr(module, name)
        if isinstance(cls, type) and hasattr(cls, "__members__") and not name.startswith("_"):
            enums |= {member: int(value) for member, value in cls.__members__.items()}
def offsets(cls):
    # a struct of our own bytes, each of its words telling where it lies
    props = cls()
    size = props.c_sizeof()
    data = bytearray(b"".join((i // 4).to_bytes(4, "little") for i in range(0, size, 4)))
    view = cls.fromObj(data)
    found = {}
    for name in cls.PROPERTIES():
        value = getattr(view, name)
        if isinstance(value, int) and not isinstance(value, bool):
            found[name] = (value & 0xFFFFFFFF) * 4
    return found
print(json.dumps({"sizes": sizes, "enums": enums, "offsets": {
    "hipDeviceProp_tR0600": offsets(hip.hipDeviceProp_t), "hipFileIOEvents_t": offsets(hipfile.hipFileIOEvents)}}))
"""


def test_layouts_and_values_are_hip_pythons(clients: Path, native_prefix: Path, tmp_path: Path) -> None:
    done = run([clients, "-c", PROBE])
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)
    layouts = {**STRUCTS, "hipFileDescr_t": structs.FILE_DESCR}
    assert theirs["sizes"] == {name: layouts[name].size for name in theirs["sizes"]}
    for name, offsets in theirs["offsets"].items():
        assert len(offsets) > (60 if name.startswith("hipDevice") else 1)
        assert offsets == {member: layouts[name].fields[member].offset for member in offsets}
    text = "".join((native_prefix / "include" / name).read_text() for name in ("hipfile.h", "hip/hip_runtime_api.h"))
    ours = {name: int(value) for name, value in re.findall(r"^\s+(hip\w+) = (-?\d+),?$", text, re.M)}
    shared = ours.keys() & theirs["enums"].keys()
    assert len(shared) > 250
    assert {name: ours[name] for name in shared} == {name: theirs["enums"][name] for name in shared}


def test_attributes_answer_what_the_properties_say() -> None:
    """Every attribute that the model answers is named by the header, and is the property of that name."""
    from hipfile_sim.hip.calls_device import ATTRIBUTES
    from hipfile_sim.machine import Machine

    names = {value: name.removeprefix("hipDeviceAttribute") for name, value in headers.device_attributes().items()}
    irregular = {
        "AsyncEngineCount": "async_engine_count",
        "ComputeCapabilityMajor": "major",
        "ComputeCapabilityMinor": "minor",
        "CudaCompatibleBegin": "ecc_enabled",
        "EccEnabled": "ecc_enabled",
        "MaxRegistersPerBlock": "regs_per_block",
        "MaxSharedMemoryPerBlock": "shared_mem_per_block",
        "MultiprocessorCount": "multi_processor_count",
        "PciDomainID": "pci_domain_id",
        "TotalConstantMemory": "total_const_mem",
    }
    dimensions = {"Block": "max_threads_dim", "Grid": "max_grid_size"}
    axes = {f"Max{of}Dim{'XYZ'[i]}": f"{field}.{i}" for of, field in dimensions.items() for i in range(3)}
    for value, field in ATTRIBUTES.items():
        name = names[value]
        plain = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
        assert field == {**irregular, **axes}.get(name, plain), (value, name, field)
    with Machine(1) as machine:
        answers = [machine.hip.hipDeviceGetAttribute(value, 0) for value in ATTRIBUTES]
    assert all(code == 0 for code, _ in answers)
