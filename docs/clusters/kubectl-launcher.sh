#!/bin/sh
# Runs a command in a pod, as ssh does on a host: kubectl-launcher.sh POD COMMAND...
# For `srd doctor --hosts POD,POD --launcher` and for mpirun (--mca plm_rsh_agent).
pod=$1
shift
exec kubectl exec -i "$pod" -- sh -c "$*"
