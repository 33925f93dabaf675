"""Build hook: compile the C libraries of `hipfile_sim/native` into the wheel, or ship without them.

The only tool needed is a C compiler. Where there is none the wheel is pure Python: everything but the C ABI face works,
and the build says so instead of failing.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Calls ``hipfile_sim/native/build.py: build(dest)``, loaded by path because the package is not installed yet."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        dest = root / "hipfile_sim" / "native" / "lib"
        libraries = self._compile(root / "hipfile_sim" / "native" / "build.py", dest)
        if not libraries:
            return
        # The libraries find Python at run time by dlsym: they fit every CPython, but only this platform.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        if version != "editable":  # an editable install finds them in the tree
            build_data["artifacts"] += [f"/{path.relative_to(root)}" for path in libraries]

    def _compile(self, script: Path, dest: Path) -> list[Path]:
        if not script.exists():
            return []
        if os.environ.get("HIPFILE_SIM_BUILD_NATIVE", "1") == "0":
            self.app.display_warning("hipfile-sim: HIPFILE_SIM_BUILD_NATIVE=0, building without the C libraries.")
            return []
        compiler = shlex.split(os.environ.get("CC", "")) or [c for c in ("cc", "gcc", "clang") if shutil.which(c)]
        if not compiler or shutil.which(compiler[0]) is None:
            looked_for = " ".join(compiler) or "cc, gcc, clang"
            self.app.display_warning(
                f"hipfile-sim: no C compiler (looked for {looked_for}). The package is built without libamdhip64.so "
                "and libhipfile.so; the Python faces work. For the libraries install gcc or clang, or set CC, and "
                "install again."
            )
            return []
        spec = importlib.util.spec_from_file_location("_hipfile_sim_native_build", script)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return list(module.build(dest))
