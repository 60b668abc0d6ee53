#!/usr/bin/env bash
# tools/deps.sh on a machine that lacks everything of pkg-config's: what it says, what it would run, and that it is silent once
# all is there. Package tools are replaced by small scripts; nothing is installed.
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
    echo "test_deps: $1" >&2
    cat "$scratch/said" >&2
    exit 1
}

mkdir "$scratch/bin"
# Absent until the pretended installation makes the file "installed".
cat >"$scratch/bin/pkg-config" <<EOS
#!/bin/sh
test -e "$scratch/installed"
EOS
# The first call that is not a trial fails as with stale package lists; after an update it installs.
cat >"$scratch/bin/apt-get" <<EOS
#!/bin/sh
echo "\$*" >>"$scratch/calls"
case "\$*" in
*update*) touch "$scratch/updated" ;;
*) test -e "$scratch/updated" || exit 100
   case "\$*" in *--simulate*) ;; *) touch "$scratch/installed" ;; esac ;;
esac
EOS
printf '#!/bin/sh\nexec "$@"\n' >"$scratch/bin/sudo"
chmod +x "$scratch"/bin/*

deps() { # EXPECTED-STATUS [VAR=VALUE...]
    local want=$1 status=0
    shift
    env "$@" PATH="$scratch/bin:$PATH" "$DLAB_SOURCE/tools/deps.sh" build >"$scratch/out" 2>"$scratch/said" || status=$?
    [ "$status" = "$want" ] || fail "exit $status, expected $want"
    [ ! -s "$scratch/out" ] || fail "something was printed on stdout"
}

deps 2 DLAB_NO_APT=1
grep -q 'libhdf5-dev *writes records' "$scratch/said" || fail "it does not say what is missing and why"
grep -q 'apt-get install .*libyaml-dev' "$scratch/said" || fail "it does not say the line to run"
[ ! -e "$scratch/calls" ] || fail "DLAB_NO_APT=1 called apt-get"

deps 0
grep -q 'update' "$scratch/calls" || fail "package lists that do not serve were not refreshed"
grep -q '^-q install .*libhdf5-dev' "$scratch/calls" || fail "nothing was installed"

deps 0 DLAB_NO_APT=1
[ ! -s "$scratch/said" ] || fail "it is not silent when nothing is missing"
echo "deps says what is missing and why, and installs it"
