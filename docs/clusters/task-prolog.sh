#!/bin/sh
# Slurm's task prolog: what it prints sets variables of each task. In slurm.conf:
#     TaskProlog=/etc/slurm/task-prolog.sh
# Only jobs that ask for SRD get it: srun --export=ALL,USE_SRD=1 ..., or `export USE_SRD=1` before.
[ -n "$USE_SRD" ] || exit 0
exec srd env --task-prolog
