#!/bin/sh
# A job that saves before its time is over, and goes on from there in its next allocation.
#
#     sbatch requeue.sh DIRECTORY PROGRAM ARGUMENTS...
#
# The program asks an advisor of checkpoints when to save, and keeps its saves in DIRECTORY. The job ends with 75 if the
# saves of all ranks are whole and work is left. A minute before the end Slurm sends SIGUSR1 to this script, which hands
# it on: save, then end.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=1:00:00
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append

saves=$1
shift
ropewalk run --on-failure restart --checkpoint "$saves" "$@" &
job=$!
# A signal ends a wait and not the job, for which the script then waits again.
trap 'again=1; kill -USR1 $job' USR1
again=1
while [ "$again" ]; do
    again=
    wait $job
    code=$?
done
echo "ropewalk run ended with $code" >&2
if [ "$code" = 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
