"""Stands in for `pip download`: fake_pip.py MODE WHEEL download ... -d FOLDER."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

mode, wheel = sys.argv[1:3]
folder = Path(sys.argv[sys.argv.index("-d") + 1])
attempts = folder.parent / "attempts"
attempt = len(attempts.read_text()) if attempts.exists() else 0
attempts.write_text("x" * (attempt + 1))

if mode == "environment":
    print(" ".join(f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("PIP_")))
    raise SystemExit(1)
if mode == "hangs":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("Progress 10 of 100", flush=True)
    (Path(wheel).parent / "pid").write_text(str(os.getpid()))
    time.sleep(60)
if mode == "no-network":
    print("WARNING: Retrying after connection broken by NewConnectionError", file=sys.stderr)
    print("ERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)")
    print("ERROR: No matching distribution found for x==1")
    raise SystemExit(1)
if mode == "unknown":
    print("ERROR: Something new.")
    raise SystemExit(1)
if mode == "full":
    print("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device")
    raise SystemExit(1)
if mode == "silent":
    raise SystemExit(0)

data = Path(wheel).read_bytes()
if mode == "truncated" or (mode == "truncated-once" and attempt == 0):
    data = data[: len(data) // 2]
print("Collecting x==1")
for percent in (0, 50, 100):
    print(f"Progress {len(data) * percent // 100} of {len(data)}")
shutil.copy(wheel, folder / Path(wheel).name)
(folder / Path(wheel).name).write_bytes(data)
