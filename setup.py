"""Builds the compiled kernels. Everything else about the package is said in pyproject.toml.

A kernel is a speed-up of a pure-Python twin, never the only way to do a thing: where there is no C
compiler the package installs without them. `STRANDLINE_REQUIRE_KERNELS=1` makes a failed build an
error (tests and wheels set it).
"""

import os
from pathlib import Path

from setuptools import Extension, setup

_KERNELS = Path("src/strandline/records/_kernels")

setup(
    ext_modules=[
        Extension(
            f"strandline.records._kernels.{source.stem}",
            [str(source)],
            extra_compile_args=["-O3"],
            optional=os.environ.get("STRANDLINE_REQUIRE_KERNELS") != "1",
        )
        for source in sorted(_KERNELS.glob("*.pyx"))
    ]
)
