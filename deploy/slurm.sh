#!/usr/bin/env bash
# A trainer on one GPU node, and workers on CPU nodes that Slurm may take back at any time.
#
#   sbatch deploy/slurm.sh python train.py --your --flags
#
# Edit the lines marked EDIT: what the trainer gets (#SBATCH), what each worker node gets (below).
# The environment is ~/stoker (install.sh cuda, once, on a login node; home is shared).
#
# The workers are an array job of their own: a node that is preempted takes no other with it, is
# put back in the queue, and joins again. Promise: when the training ends, also by scancel, the
# workers' jobs do. Ban: no fixed port, since others may share the node.
#SBATCH --job-name=stoker-trainer
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus=1            # EDIT
#SBATCH --cpus-per-task=8   # EDIT
#SBATCH --mem=64G           # EDIT
#SBATCH --time=24:00:00     # EDIT
set -euo pipefail

num_nodes="${NUM_NODES:-4}"      # EDIT
node_cores="${NODE_CORES:-16}"   # EDIT
node_flags=(--mem-per-cpu=3G --time=24:00:00) # EDIT: --partition=, --qos= of preemptible CPU nodes

bin="${STOKER_ENV:-$HOME/stoker}/bin"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$HOME/.ray/auth_token"
if ! [ -s "$RAY_AUTH_TOKEN_PATH" ]; then
    mkdir -p "$HOME/.ray"
    (umask 077 && head -c 32 /dev/urandom | sha256sum | cut -d ' ' -f 1 >"$RAY_AUTH_TOKEN_PATH")
fi

node_ip="${NODE_IP:-$(hostname --ip-address | cut -d ' ' -f 1)}"
read -r port client_port < <("$bin/python" -c 'if True:
    import socket
    free = [socket.create_server(("", 0)) for _ in range(2)]
    print(*(s.getsockname()[1] for s in free))')
temp="/tmp/ray-$SLURM_JOB_ID"
start=("$bin/ray" start --block --disable-usage-stats --dashboard-agent-listen-port=0)

workers=""
finish() {
    trap - EXIT TERM INT
    [ -z "$workers" ] || scancel "$workers" || true # gone already: their head is, too
    mapfile -t children < <(jobs -p)
    kill "${children[@]}" 2>/dev/null || true
    wait
    rm -rf "$temp"
}
trap finish EXIT
trap 'exit 143' TERM INT # so that scancel passes through finish

"${start[@]}" --temp-dir="$temp" --head --node-ip-address="$node_ip" --port="$port" --num-cpus=0 \
    --ray-client-server-port="$client_port" --include-dashboard=false &
head=$!
until "$bin/ray" health-check --address "$node_ip:$port" 2>/dev/null; do
    kill -0 "$head" # it died, and said why above: set -e ends us
    sleep 1
done

workers="$(sbatch --parsable --job-name=stoker-worker --array="1-$num_nodes" --nodes=1 --ntasks=1 \
    --cpus-per-task="$node_cores" --requeue --open-mode=append "${node_flags[@]}" \
    --wrap "ended=; trap 'ended=yes' TERM # the last line is for then, too
            [ -n \"\$ended\" ] || ${start[*]} --address=$node_ip:$port --num-cpus=$node_cores --temp-dir=/tmp/ray-\$SLURM_JOB_ID
            rm -rf /tmp/ray-\$SLURM_JOB_ID")"

# In the background, so that the traps run while it does.
"$bin/stoker" run --cluster "$node_ip:$port" --workers "0:$((num_nodes * node_cores))" -- "$@" &
wait $!
