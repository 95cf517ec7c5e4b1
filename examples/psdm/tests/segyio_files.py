"""Files that segyio writes, with IBM's and IEEE's floats, are imported and migrated, and segyio reads the results.

Arguments: the executable ropewalk-demo-worker and a folder for files. `cargo xtask python` runs it.
"""

import math
import subprocess
import sys
from pathlib import Path

try:
    import numpy as np
    import segyio
except ImportError as missing:
    print(f"skipped: {missing}; `pip install segyio` has it")
    sys.exit(0)

VELOCITY_M_S = 2000.0
DEPTH_M = 300.0
INTERVAL_S = 0.002
SAMPLES = 400
SHOTS = 11
RECEIVERS = 21
STEP_M = 20.0


def coordinates(x_m):
    """A place on a line that runs 30 degrees north of east, in centimetres."""
    angle = math.radians(30)
    x, y = 430_000 + x_m * math.cos(angle), 5_900_000 + x_m * math.sin(angle)
    return round(x * 100), round(y * 100)


def reflection(offset_m):
    """The echo of a flat reflector, a wavelet of 25 Hz; segyio converts no numbers below the least normal one."""
    time_s = math.hypot(offset_m, 2 * DEPTH_M) / VELOCITY_M_S
    argument = (math.pi * 25 * (np.arange(SAMPLES) * INTERVAL_S - time_s)) ** 2
    echo = ((1 - 2 * argument) * np.exp(-argument)).astype(np.float32)
    return np.where(np.abs(echo) < 1e-30, np.float32(0), echo)


def write(path, sample_format):
    """A line of shots, each with receivers on both sides."""
    spec = segyio.spec()
    spec.format = sample_format
    spec.samples = np.arange(SAMPLES) * INTERVAL_S * 1000
    spec.tracecount = SHOTS * RECEIVERS
    with segyio.create(str(path), spec) as file:
        file.bin.update({segyio.BinField.Interval: round(INTERVAL_S * 1e6)})
        for trace in range(spec.tracecount):
            shot, receiver = divmod(trace, RECEIVERS)
            source_m = (shot + 10) * STEP_M
            receiver_m = (shot + receiver) * STEP_M
            (source_x, source_y), (group_x, group_y) = coordinates(source_m), coordinates(receiver_m)
            file.header[trace] = {
                segyio.TraceField.FieldRecord: 100 + shot,
                segyio.TraceField.SourceGroupScalar: -100,
                segyio.TraceField.SourceX: source_x,
                segyio.TraceField.SourceY: source_y,
                segyio.TraceField.GroupX: group_x,
                segyio.TraceField.GroupY: group_y,
                segyio.TraceField.TRACE_SAMPLE_COUNT: SAMPLES,
                segyio.TraceField.TRACE_SAMPLE_INTERVAL: round(INTERVAL_S * 1e6),
            }
            file.trace[trace] = reflection(receiver_m - source_m).astype(file.dtype)


def read(path):
    """All traces of a file, as segyio reads them."""
    with segyio.open(str(path), ignore_geometry=True) as file:
        fields = [segyio.TraceField.SourceX, segyio.TraceField.GroupX]
        return np.array(file.trace.raw[:]), [file.attributes(field)[:] for field in fields]


def check(worker, folder, sample_format):
    """The imported traces are segyio's bit for bit, at their places, and the image has the reflector at its depth."""
    data, survey, out = (folder / f"{name}-{sample_format}" for name in ("data.sgy", "survey", "out"))
    write(data, sample_format)
    velocity = ["--constant-velocity", str(VELOCITY_M_S), "--spacing", "10", "--depth", "500"]
    subprocess.run([worker, "import", data, "--out", survey, *velocity], check=True)
    traces, _ = read(data)
    for shot in range(SHOTS):
        imported, (source_cm, group_cm) = read(survey / f"shot-{shot + 1:03}.sgy")
        expected = traces[shot * RECEIVERS : (shot + 1) * RECEIVERS]
        assert np.array_equal(imported.view(np.uint32), expected.view(np.uint32)), f"shot {shot}"
        assert np.abs(source_cm - (shot + 10) * STEP_M * 100).max() <= 2, source_cm
        assert np.abs(group_cm - (shot + np.arange(RECEIVERS)) * STEP_M * 100).max() <= 2, group_cm

    subprocess.run([worker, "serial", "--survey", survey, "--out", out, "--parts", "2"], check=True)
    section, _ = read(out / "section.sgy")
    middle = section[len(section) // 2 - 3 : len(section) // 2 + 4]
    peaks = middle.argmax(axis=1) * 10
    assert np.abs(peaks - DEPTH_M).max() <= 10, peaks


def check_refusal(worker, folder):
    """Another sample format is refused by its name."""
    data = folder / "integers.sgy"
    write(data, 3)
    words = [worker, "import", data, "--out", folder / "none", "--constant-velocity", "2000"]
    refused = subprocess.run(words, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "sample format 3 (integer of 16 bits)" in refused.stderr, refused.stderr


def main():
    worker, folder = sys.argv[1], Path(sys.argv[2])
    for sample_format in (1, 5):
        check(worker, folder, sample_format)
    check_refusal(worker, folder)
    print("segyio: IBM and IEEE floats are imported, others refused")


main()
