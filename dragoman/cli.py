"""The command line: parse, call, print. Nothing heavy is imported until a command runs.

Data goes to stdout, everything else to stderr. Exit codes: 0; 2 for the caller's mistake; 1 for a run that failed;
130 after Ctrl-C.
"""

import errno
import logging
import os
import sys
from typing import Annotated

import typer

from dragoman import __version__
from dragoman.commands import carrying, making, plotting, serving, studying, using
from dragoman.errors import ConfigError, DragomanError, RunError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Attention Is All You Need: from your own parallel text to a translator you can trust and look into.",
)

for command in (
    making.prepare,
    making.train,
    using.translate,
    using.score,
    using.evaluate,
    making.average,
    using.inspect,
    serving.serve,
    making.demo,
):
    app.command()(command)
app.command("export")(carrying.export)
app.command("import")(carrying.import_marian)
app.add_typer(plotting.app, name="plot")
app.add_typer(studying.app, name="study")


def main() -> None:
    """Run the command line; what a user can cause ends in one clear message and an exit code."""
    # Threads that spin while they wait starve one another as soon as another program wants a core: a training step was
    # seen to take 30 times as long. Threads that sleep cost at most a third (docs/LOG.md, 2026-11-16).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    logging.basicConfig(format="warning: %(message)s", level=logging.WARNING)
    try:
        try:
            app(standalone_mode=True)
        finally:
            if sys.stdout:
                sys.stdout.flush()  # what cannot be written is told here, not when Python ends
    except DragomanError as error:
        sys.exit(_report(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.errno is None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python does not try again
        if error.errno == errno.EPIPE:
            sys.exit(0)
        kind = RunError if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO) else ConfigError
        sys.exit(_report(kind(error.filename or "files", str(error.strerror).lower())))
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error) and not isinstance(error, MemoryError):
            raise
        sys.exit(_report(RunError("memory", (str(error) or "not enough of it").splitlines()[0])))


def _report(error: DragomanError) -> int:
    print(error.report(), file=sys.stderr)
    return error.exit_code


def _show_version(wanted: bool | None) -> None:
    if wanted:
        print(f"dragoman {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool | None, typer.Option("--version", callback=_show_version, is_eager=True)] = None,
) -> None:
    pass


if __name__ == "__main__":
    main()
