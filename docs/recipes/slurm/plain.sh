#!/bin/sh
# A job in an allocation of Slurm, which names the hosts and the number of processes.
#
#     sbatch plain.sh PROGRAM ARGUMENTS...
#
# Options of sbatch on its command line take precedence over those here.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=1:00:00

exec ropewalk run "$@"
