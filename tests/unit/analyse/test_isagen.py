"""Every mistake that tools/isagen.py must catch has a small table here; the first line says what it
must answer. Also: SUPPORT.md at the root is what the table says."""
import contextlib
import io
import pathlib
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
here = pathlib.Path(__file__).parent
sys.path.insert(0, str(root / "tools"))
sys.dont_write_bytecode = True
import isagen  # noqa: E402

generator = [sys.executable, root / "tools" / "isagen.py"]
refusals = ["--refusals", root / "include" / "trapless" / "refusal.h"]
failures = 0


def run_here(arguments):
    """The generator's status and what it said, without a new process for each of many tables."""
    said = io.StringIO()
    sys.argv = ["isagen.py"] + [str(argument) for argument in arguments]
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = isagen.main()
    return status, said.getvalue()


tables = sorted((here / "isagen").glob("*.isa"))
if len(tables) < 70:
    sys.exit("the tables of mistakes are missing")
for table in tables:
    expect = table.read_text().splitlines()[0].removeprefix("# expect: ")
    status, said = run_here([table, "-o", "/dev/null"] + refusals)
    good = status == 0 if expect == "ok" else status == 1 and expect in said
    if not good:
        failures += 1
        print(f"{table.name}: expected '{expect}', got {status}: {said.strip()}")

tables = [root / "isa" / "x86_64.isa", root / "isa" / "arm64.isa", root / "isa" / "riscv.isa"]
run = subprocess.run(generator + tables + ["--support"] + refusals,
                     capture_output=True, text=True, check=True)
if run.stdout != (root / "SUPPORT.md").read_text():
    failures += 1
    print("SUPPORT.md is not what the tables say; run tools/isagen.py isa/x86_64.isa isa/arm64.isa isa/riscv.isa "
          "--support --refusals include/trapless/refusal.h -o SUPPORT.md")
sys.exit(1 if failures else 0)
