# shellcheck shell=bash
# Sourced by .ci/run: a Docker engine with the images of the tests in containers, if that can be had in
# three minutes (those of the compose test: in half as much again); else these tests are skipped.
# An engine that is started here ends with the shell.
UP=../shared/containers/up # starts an engine, and builds images where none can be pulled
engine='' preparing='' started=''

answers() { timeout 10 docker version >/dev/null 2>&1; }

begin_engine() { # in the background, until settle_engine
  engine=$(mktemp -d)
  trap end_engine EXIT
  answers || started=yes
  if [ -x "$UP" ]; then
    # From a copy: what is built of files that nobody may write does not run.
    cp -r "${UP%/*}/." "$engine" && chmod -R u+w "$engine"
    jars=$(.venv/bin/python -c 'from dovecote.devstack.kafka.jars import kafka_broker_jars as jars; print(jars())')
    build_images "$jars" 2>"$engine/log" &
    preparing=$!
  elif [ -z "$started" ]; then
    pull_images >"$engine/log" 2>&1 &
    preparing=$!
  fi
}

build_images() { # the servers' first: their tests do not need the others
  export PYTHON=$PWD/.venv/bin/python KAFKA_JARS=$1
  timeout --kill-after=5 180 "$engine/up" postgres kafka >"$engine/settings" || return
  timeout --kill-after=5 90 "$engine/up" python compose >/dev/null || true
}

pull_images() {
  .venv/bin/python -c 'from tests.support.fix_containers import NEEDED; print(*NEEDED.args, sep="\n")' |
    while read -r image; do
      docker image inspect "$image" || timeout 60 docker pull "$image"
    done
}

settle_engine() {
  if [ -n "$preparing" ] && ! wait "$preparing"; then tail -n 3 "$engine/log" >&2; fi
  preparing=''
  # shellcheck source=/dev/null
  [ ! -s "$engine/settings" ] || . "$engine/settings"
  answers || echo 'No Docker engine: the tests in containers are skipped.' >&2
}

end_engine() {
  [ -z "$preparing" ] || kill "$preparing"
  rm -rf "$engine"
  local pid
  [ -n "$started" ] && pid=$(cat /var/run/docker.pid 2>/dev/null) || return
  # The file outlives an engine that was killed, and its number may be another's by now.
  [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] || return
  kill "$pid" && timeout 30 tail --pid="$pid" -f /dev/null
}
