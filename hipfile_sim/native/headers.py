"""The public headers, filled in from the tables that the library itself is made from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path

from hipfile_sim.driver import codes as file_codes
from hipfile_sim.driver.clauses.registry import STATS_FUNCTIONS
from hipfile_sim.driver.profiles import Profile
from hipfile_sim.hip import calls_device
from hipfile_sim.hip import codes as hip_codes
from hipfile_sim.native import structs
from hipfile_sim.native.symbols import Arg, Symbol
from hipfile_sim.native.table_hip import HIP
from hipfile_sim.native.table_hipfile import HIPFILE

__all__ = ["device_attributes", "render"]

_INCLUDE = Path(__file__).parent / "include"

#: Flags of calls that the model takes and does not look at; those that it knows are in hip/codes.py.
_FLAGS = {
    "hipHostRegisterDefault": 0,
    "hipHostRegisterPortable": 1,
    "hipHostRegisterMapped": 2,
    "hipHostRegisterIoMemory": 4,
    "hipMemAttachGlobal": 1,
    "hipMemAttachHost": 2,
    "hipMemAttachSingle": 4,
    "hipDeviceScheduleAuto": 0,
    "hipDeviceScheduleSpin": 1,
    "hipDeviceScheduleYield": 2,
    "hipDeviceScheduleBlockingSync": 4,
    "hipDeviceMapHost": 8,
}

#: Old names of codes, kept by HIP's header.
_ERROR_ALIASES = {
    "hipErrorMemoryAllocation": "hipErrorOutOfMemory",
    "hipErrorInitializationError": "hipErrorNotInitialized",
    "hipErrorMapBufferObjectFailed": "hipErrorMapFailed",
    "hipErrorInvalidResourceHandle": "hipErrorInvalidHandle",
}


def device_attributes() -> dict[str, int]:
    """Names and values of ``hipDeviceAttribute_t``."""
    lines = (_INCLUDE / "device_attributes.txt").read_text().splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}


def _enum(members: Mapping[str, object] | type[IntEnum]) -> str:
    items = members.items() if isinstance(members, Mapping) else ((m.name, m.value) for m in members)
    return ",\n".join(f"    {name} = {value}" for name, value in items)


def _macros(values: Mapping[str, int]) -> str:
    return "\n".join(f"#define {name} {value:#x}u" if value > 9 else f"#define {name} {value}u"
                     for name, value in values.items())  # fmt: skip


def _prototype(symbol: Symbol) -> str:
    def argument(arg: Arg) -> str:
        text = f"{arg.ctype}{arg.name}" if arg.ctype.endswith("*") else f"{arg.ctype} {arg.name}"
        return text if arg.default is None else f"{text} __dparm({arg.default})"

    arguments = ", ".join(map(argument, symbol.args)) or "void"
    space = "" if symbol.returns.endswith("*") else " "
    return f"{symbol.returns}{space}{symbol.name}({arguments});"


def _prototypes(symbols: Iterable[Symbol], prefix: str = "") -> str:
    return "\n".join(prefix + _prototype(symbol) for symbol in symbols if not symbol.name.startswith("__"))


def _structure(name: str, layout: structs.Layout) -> str:
    return f"typedef struct {name.removesuffix('_t')} {{\n{layout.members()}\n}} {name};\n"


_STATISTICS = "".join(
    [
        "\n/* -- statistics (fields in the release's order; that all numbers have 64 bits is not verified) -- */\n\n",
        f"#define HIPFILE_MAX_GPUS {structs.STATS_L3.text.rpartition('[')[2].rstrip(']')}\n\n",
        _structure("hipFileOpCounter_t", structs.STATS_L1.nested["hipFileOpCounter_t"]),
        "\n",
        _structure("hipFileStatsLevel1_t", structs.STATS_L1),
        "\n",
        _structure("hipFileStatsLevel2_t", structs.STATS_L2),
        "\n",
        _structure("hipFilePerGpuStats_t", structs.STATS_PER_GPU),
        "\n",
        _structure("hipFileStatsLevel3_t", structs.STATS_L3),
    ]
)


def _hip_values() -> dict[str, object]:
    version = calls_device.HIP_VERSION
    errors: dict[str, object] = {
        member.name: member.value for member in hip_codes.HipError if member.name != "hipErrorNotPermitted"
    }
    flags: dict[str, int] = {
        **hip_codes.StreamFlag.__members__,
        **hip_codes.EventFlag.__members__,
        **hip_codes.HostMallocFlag.__members__,
        **hip_codes.WaitValueFlag.__members__,
        **{name: value for value, name in hip_codes.EXT_MALLOC_FLAGS.items()},
        **_FLAGS,
    }
    return {
        "HIP_MAJOR": version // 10_000_000,
        "HIP_MINOR": version // 100_000 % 100,
        "HIP_PATCH": version % 100_000,
        "HIP_VERSION": version,
        "ERRORS": _enum({**errors, **_ERROR_ALIASES}),
        "MEMCPY_KINDS": _enum(hip_codes.MemcpyKind),
        "MEMORY_TYPES": _enum(hip_codes.MemoryType),
        "DEVICE_ATTRIBUTES": _enum(device_attributes()),
        "FLAGS": _macros({name: int(value) for name, value in flags.items()}),
        "DEVICE_PROP": structs.DEVICE_PROP.members(),
        "POINTER_ATTRIBUTE": structs.POINTER_ATTRIBUTE.members(),
        "FUNCTIONS": _prototypes(HIP),
    }


def _file_values(profile: Profile) -> dict[str, object]:
    major, minor, patch = profile.version
    functions = [s for s in HIPFILE if profile.stats_api or s.name not in STATS_FUNCTIONS]
    props = structs.DRIVER_PROPS
    return {
        "VERSION": ".".join(map(str, profile.version)),
        "MAJOR": major,
        "MINOR": minor,
        "PATCH": patch,
        "BASE_ERR": file_codes.BASE_ERR,
        "OP_ERRORS": _enum(file_codes.OpError),
        "HANDLE_TYPES": _enum(file_codes.HandleType),
        "STATUS_FLAGS": _enum(file_codes.DriverStatusFlag),
        "CONTROL_FLAGS": _enum(file_codes.DriverControlFlag),
        "FEATURE_FLAGS": _enum(file_codes.DriverFeatureFlag),
        "SIZE_T_PARAMETERS": _enum(file_codes.SizeTParameter),
        "BOOL_PARAMETERS": _enum(file_codes.BoolParameter),
        "STRING_PARAMETERS": _enum(file_codes.StringParameter),
        "OPCODES": _enum(file_codes.BatchOpcode),
        "BATCH_STATUS": _enum(file_codes.BatchStatus),
        "BATCH_MODES": _enum(file_codes.BatchMode),
        "NVFS_MEMBERS": props.nested["struct nvfs"].members("        "),
        "PROPS_MEMBERS": "\n".join(f"    {text};" for text in props.declarations()[1:]),
        "BATCH_MEMBERS": structs.BATCH_PARAMS.nested["union u"].members("            "),
        "EVENT_MEMBERS": structs.BATCH_EVENT.members(),
        "STATISTICS": _STATISTICS if profile.stats_api else "",
        "FUNCTIONS": _prototypes(functions, "HIPFILE_API "),
    }


def render(profile: Profile) -> dict[str, str]:
    """Path below ``include/`` -> text, for one release.

    >>> from hipfile_sim.driver.profiles import get_profile
    >>> sorted(render(get_profile("0.4")))
    ['hip/hip_runtime.h', 'hip/hip_runtime_api.h', 'hip/hip_version.h', 'hipfile.h']
    """
    values = {"hipfile.h.in": _file_values(profile)}
    hip = _hip_values()
    texts = {}
    for template in sorted(_INCLUDE.rglob("*.in")):
        name = str(template.relative_to(_INCLUDE))
        known = values.get(name, hip)
        parts = re.split(r"@([A-Z_]+)@", template.read_text())  # text, name, text, name, ..., text
        parts[1::2] = [str(known[part]) for part in parts[1::2]]
        texts[name.removesuffix(".in")] = "".join(parts)
    return texts
