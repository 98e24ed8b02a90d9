#!/usr/bin/env bash
# Ray on machines that are simply there. The trainer is the head; each other machine joins it.
#
#   trainer$ bare-hosts.sh head               makes the token if there is none, and starts the head
#   worker$  bare-hosts.sh join TRAINER:6379  with the trainer's token in ~/.ray/auth_token
#
# Both run until Ctrl-C or SIGTERM. Edit nothing; set, where the default is wrong:
#   STOKER_ENV   where install.sh put the environment             (~/stoker)
#   NODE_IP      this machine's address that the others can reach (Ray's guess)
#   PORT         where the head listens                           (6379)
#   CLIENT_PORT  where it listens for ray://                      (10001)
#   CPUS         workers on this machine                          (head: 0, join: its cores)
#   TEMP         Ray's logs and sockets                           (/tmp/ray)
#
# Promise: who has not the token is refused; what this started ends with it, and nothing else does.
# Ban: no `ray stop` (it ends everybody's Ray); the dashboard listens on this machine only.
set -euo pipefail

usage() {
    echo "usage: bare-hosts.sh head | join HOST:PORT" >&2
    exit 2
}
ray="${STOKER_ENV:-$HOME/stoker}/bin/ray"
token="${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}"
start=("$ray" start --block --disable-usage-stats --dashboard-agent-listen-port=0)
[ -z "${NODE_IP:-}" ] || start+=(--node-ip-address="$NODE_IP")
[ -z "${TEMP:-}" ] || start+=(--temp-dir="$TEMP")
[ -x "$ray" ] || {
    echo "bare-hosts: no $ray; run install.sh first, or set STOKER_ENV" >&2
    exit 1
}

case "${1:-}" in
    head)
        [ $# = 1 ] || usage
        if ! [ -s "$token" ]; then
            mkdir -p "$(dirname "$token")"
            (umask 077 && head -c 32 /dev/urandom | sha256sum | cut -d ' ' -f 1 >"$token")
            echo "bare-hosts: wrote a new token to $token; copy it to each worker" >&2
        fi
        # 0 CPUs: the trainer's cores are the trainer's.
        start+=(--head --port="${PORT:-6379}" --ray-client-server-port="${CLIENT_PORT:-10001}")
        start+=(--num-cpus="${CPUS:-0}" --dashboard-host=127.0.0.1)
        ;;
    join)
        [ $# = 2 ] || usage
        [ -s "$token" ] || {
            echo "bare-hosts: no token in $token; copy it from the trainer: scp -p TRAINER:.ray/auth_token ~/.ray/" >&2
            exit 1
        }
        start+=(--address="$2" ${CPUS:+--num-cpus="$CPUS"})
        ;;
    *) usage ;;
esac
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$token"
exec "${start[@]}"
