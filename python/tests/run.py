#!/usr/bin/env python3
"""Installs the package from a build folder into a virtual environment there, and runs its tests.

    run.py BUILD [--cmake CMAKE] [--preload LIBRARY]... [PYTEST ARGUMENT...]

What Python runs comes through pyproject.toml, as in a wheel; what is compiled comes from BUILD by the same install
component as in a wheel, so nothing is compiled twice. The environment sees packages of the system (torch, if it is
there); what else is needed comes from PyPI. Where these packages are missing and PyPI cannot be reached, nothing is
tested: the exit status is 77, by which CTest names the test as skipped.

--preload: libraries that the tests' Python is started with: those of AddressSanitizer, if BUILD is sanitized. Then
tests with the mark not_sanitized are left out.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import venv

NOT_TESTED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
# The module, and what installs it.
NEEDED = {
    "numpy": "numpy",
    "pytest": "pytest",
    "pytest_timeout": "pytest-timeout",
    "hypothesis": "hypothesis",
    "ml_dtypes": "ml_dtypes",
    "scikit_build_core": "scikit-build-core>=0.10",
}


def run(what, *command, **options):
    """Quiet, unless it fails."""
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nrun.py: could not {what} (status {done.returncode})")
    return done.stdout


def missing(python):
    """Packages that the environment lacks."""
    code = (
        "import importlib.util, sys; print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))"
    )
    return [NEEDED[name] for name in run("ask for packages", python, "-c", code, *NEEDED).split()]


def make_environment(folder):
    """The environment's Python."""
    python = folder / "bin" / "python"
    if (
        not python.exists()
        or subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True).returncode != 0
    ):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            venv.create(folder, with_pip=True, system_site_packages=True)
        except (subprocess.CalledProcessError, ImportError) as error:
            sys.exit(f"run.py: could not make a virtual environment ({error}); on Debian: apt-get install python3-venv")
    wanted = missing(python)
    if wanted:
        done = subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], capture_output=True, text=True)
        if done.returncode != 0:
            print(
                f"{done.stdout}{done.stderr}\n"
                f"run.py: could not install {', '.join(wanted)} from PyPI (no network?): nothing is tested"
            )
            sys.exit(NOT_TESTED)
    return python


def install(python, build, cmake):
    run(
        "install what Python runs",
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--force-reinstall",
        "--config-settings=wheel.cmake=false",
        ROOT,
    )
    where = run("find the package", python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    run("install what is compiled", cmake, "--install", build, "--component", "python", "--prefix", where)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--preload", type=pathlib.Path, action="append", default=[])
    arguments, rest = parser.parse_known_args()
    python = make_environment(arguments.build.resolve() / "python_tests")
    install(python, arguments.build, arguments.cmake)
    tests = [python, "-B", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", ROOT / "python/tests", *rest]
    environment = dict(os.environ)
    if arguments.preload:  # not for pip. Leaks: Python itself has some at its end
        environment |= {
            "LD_PRELOAD": ":".join(str(library.resolve()) for library in arguments.preload),
            "ASAN_OPTIONS": "detect_leaks=0:" + environment.get("ASAN_OPTIONS", ""),
            "UBSAN_OPTIONS": "print_stacktrace=1:" + environment.get("UBSAN_OPTIONS", ""),
        }
    sys.exit(subprocess.run([str(word) for word in tests], cwd=arguments.build, env=environment).returncode)


if __name__ == "__main__":
    main()
