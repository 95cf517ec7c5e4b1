"""Builds the wheel (PEP 517): the package, its extension module, the command and the libraries in C.

One call of cargo builds all of them; with ROPEWALK_ARTIFACTS they are taken from that folder, where cargo has put them
before. It needs nothing but Python and Rust.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

#: Packages that cargo builds, what it makes of them, and where that goes in the wheel. What is in `data` goes below the
#: folder of the environment, `scripts` to the commands.
ARTIFACTS = [
    ("ropewalk-cli", "ropewalk", "{data}/scripts/ropewalk"),
    ("ropewalk-cli", "ropewalk-demo-worker", "{data}/scripts/ropewalk-demo-worker"),
    ("ropewalk-python", "libropewalk_python.so", "ropewalk/_native.abi3.so"),
    ("ropewalk-checkpoint-c", "librw_checkpoint.so", "ropewalk/librw_checkpoint.so"),
    # The command looks for it in ../lib/ropewalk.
    ("ropewalk-pmi-c", "libpmi.so", "{data}/data/lib/ropewalk/libpmi.so.0"),
    ("ropewalk-pmi2-c", "libpmi2.so", "{data}/data/lib/ropewalk/libpmi2.so.0"),
]
SOURCES = ("*.py", "*.pyi", "py.typed")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    built = os.environ.get("ROPEWALK_ARTIFACTS")
    folder = Path(built) if built else _cargo_build()
    with tempfile.TemporaryDirectory() as temporary:
        data = f"{name}-{version}.data"
        stripped = []
        for _, file, place in ARTIFACTS:
            copy = Path(temporary) / file
            _strip(folder / file, copy)
            stripped.append((copy, place.format(data=data)))
        tag = f"cp311-abi3-{_platform([copy for copy, _ in stripped])}"
        wheel = Path(wheel_directory) / f"{name}-{version}-{tag}.whl"
        sources = sorted(path for pattern in SOURCES for path in (HERE / name).glob(pattern))
        files = [(path.read_bytes(), f"{name}/{path.name}", 0o644) for path in sources]
        files += [(path.read_bytes(), place, 0o755) for path, place in stripped]
        information = f"{name}-{version}.dist-info"
        files += [(text.encode(), f"{information}/{file}", 0o644) for file, text in _information(project, tag)]
        files += [
            ((ROOT / file).read_bytes(), f"{information}/licenses/{file}", 0o644)
            for file in ("LICENSE-APACHE", "LICENSE-MIT")
        ]
        _write(wheel, files, f"{information}/RECORD")
    return wheel.name


def build_sdist(sdist_directory, config_settings=None):
    raise RuntimeError("the sources are the whole repository: install from a checkout of it, or build a wheel")


def _cargo_build():
    packages = [word for package in sorted({package for package, _, _ in ARTIFACTS}) for word in ("-p", package)]
    subprocess.run(["cargo", "build", "--release", "--locked", *packages], cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"


def _strip(source, target):
    """Copies without what only debuggers read, which is most of a file; strip(1) comes with the linker."""
    shutil.copyfile(source, target)
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-debug", target], check=True)


def _platform(files):
    """The tag of systems with a new enough C library (PEP 600): files name the versions that they need."""
    versions = {(2, 17)}
    for file in files:
        found = re.findall(rb"GLIBC_(\d+)\.(\d+)", file.read_bytes())
        versions.update((int(major), int(minor)) for major, minor in found)
    major, minor = max(versions)
    machine = sysconfig.get_platform().removeprefix("linux-").replace("-", "_")
    return f"manylinux_{major}_{minor}_{machine}"


def _information(project, tag):
    metadata = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
        f"Keywords: {','.join(project['keywords'])}",
        *(f"Classifier: {classifier}" for classifier in project["classifiers"]),
        *(f"License-File: {file}" for file in ("LICENSE-APACHE", "LICENSE-MIT")),
        "Description-Content-Type: text/markdown",
        "",
        (HERE / project["readme"]).read_text(),
    ]
    wheel = ["Wheel-Version: 1.0", "Generator: ropewalk", "Root-Is-Purelib: false", f"Tag: {tag}", ""]
    return [("METADATA", "\n".join(metadata)), ("WHEEL", "\n".join(wheel))]


def _write(wheel, files, record):
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for content, place, mode in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{place},sha256={digest},{len(content)}\n")
            _add(archive, place, content, mode)
        lines.append(f"{record},,\n")
        _add(archive, record, "".join(lines).encode(), 0o644)


def _add(archive, place, content, mode):
    # The same bytes whenever it is built.
    entry = zipfile.ZipInfo(place, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)
