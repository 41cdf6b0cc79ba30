#!/bin/sh
# Slurm, 8 GPUs a node; the number of nodes is given to sbatch, 1 or 16. The self-test is one
# process that tests all GPUs of its node; every other command has a process for each GPU:
#
#     sbatch --nodes 1 --ntasks-per-node=1 docs/launch/slurm.sh treeattn-bench selftest
#     sbatch --nodes 16 docs/launch/slurm.sh treeattn-bench decode --device cuda -G --json run.json
#
#SBATCH --job-name=treeattn
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=00:30:00
set -eu
[ $# -ge 1 ] || {
    echo "usage: sbatch --nodes N $0 COMMAND..." >&2
    exit 2
}
# Every task must see all GPUs of its node: a rank's GPU is its number there, and peers are opened.
exec srun --mpi="${SLURM_MPI_TYPE:-pmix}" --gpu-bind=none "$@"
