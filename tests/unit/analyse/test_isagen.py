"""Every mistake that tools/isagen.py must catch has a small table here; the first line says what it
must answer. Also: SUPPORT.md at the root is what the table says."""
import pathlib
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
here = pathlib.Path(__file__).parent
generator = [sys.executable, root / "tools" / "isagen.py"]
refusals = ["--refusals", root / "src" / "base" / "refusal.h"]
failures = 0

tables = sorted((here / "isagen").glob("*.isa"))
if len(tables) < 25:
    sys.exit("the tables of mistakes are missing")
for table in tables:
    expect = table.read_text().splitlines()[0].removeprefix("# expect: ")
    run = subprocess.run(generator + [table] + refusals, capture_output=True, text=True, check=False)
    good = run.returncode == 0 if expect == "ok" else run.returncode == 1 and expect in run.stderr
    if not good:
        failures += 1
        print(f"{table.name}: expected '{expect}', got {run.returncode}: {run.stderr.strip()}")

run = subprocess.run(generator + [root / "isa" / "x86_64.isa", "--support"] + refusals,
                     capture_output=True, text=True, check=True)
if run.stdout != (root / "SUPPORT.md").read_text():
    failures += 1
    print("SUPPORT.md is not what isa/x86_64.isa says; run tools/isagen.py isa/x86_64.isa --support "
          "--refusals src/base/refusal.h -o SUPPORT.md")
sys.exit(1 if failures else 0)
