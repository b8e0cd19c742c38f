"""Builds the parts in C, if there is a C compiler and Python's headers; without them the package is complete all the same.

`CC` names the compiler, `FIREARROW_PURE=1` leaves them out.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULES = (Path("src/firearrow/store/_native"), Path("src/firearrow/wire/_native"))
OPTIONS = ("-O3", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers", "-fPIC", "-shared")


class NativeParts(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        for module in MODULES:
            built = Path(f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}")
            if build(root / f"{module}.c", root / built):
                build_data["pure_python"] = False
                build_data["infer_tag"] = True
                build_data["artifacts"].append(str(built))


def build(source: Path, built: Path) -> bool:
    """False, after saying why, if it cannot be built here; what was built before is gone then."""
    built.unlink(missing_ok=True)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    headers = sysconfig.get_path("include")
    if os.environ.get("FIREARROW_PURE") == "1":
        return _without("FIREARROW_PURE is 1")
    if sys.implementation.name != "cpython":
        return _without(f"they are for CPython, this is {sys.implementation.name}")
    if shutil.which(compiler[0]) is None:
        return _without(f"there is no C compiler {compiler[0]}")
    if not Path(headers, "Python.h").exists():
        return _without(f"there is no Python.h in {headers}")
    new = built.with_suffix(".new")  # a running broker may have the old one mapped
    made = subprocess.run([*compiler, *OPTIONS, f"-I{headers}", "-o", str(new), str(source)], capture_output=True, text=True)
    if made.returncode != 0:
        return _without(f"{compiler[0]} could not build {source.name}:\n{made.stderr}")
    new.replace(built)
    return True


def _without(why: str) -> bool:
    print(f"firearrow: built without its parts in C: {why}", file=sys.stderr)
    return False
