"""The start of a rank: sets torchrun's environment variables and becomes the user's program.

`launch.py` lets mpiexec run this file, by its path, in every rank: `python starter.py program
arguments...`. It imports nothing of tapegrad, and replaces itself by the program, so that the
process has the same id and is the one that MPI knows.
"""

from __future__ import annotations

import json
import os
import sys

#: torchrun's variables, and those in which starters of MPI programs say the same
VARIABLES = {
    "RANK": ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"),
    "WORLD_SIZE": ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"),
    "LOCAL_RANK": ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "LOCAL_WORLD_SIZE": ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"),
}


def main(command: list[str]) -> None:
    """Become `command`, a program and its arguments."""
    for name, others in VARIABLES.items():
        found = next((os.environ[other] for other in others if other in os.environ), None)
        if found is not None:
            os.environ[name] = found
    rank = os.environ.get("RANK", "0")
    folder = os.environ.get("TAPEGRAD_LAUNCH_FOLDER")
    if folder is not None:
        path = os.path.join(folder, f"launched-{rank}")
        said = {"rank": int(rank), "pid": os.getpid(), "state": "launched", "why": ""}
        try:
            with open(path + ".new", "w") as file:
                json.dump(said, file)
            os.replace(path + ".new", path)
        except OSError:
            pass  # a machine that does not see the launcher's folder
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"tapegrad launch: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
