#!/bin/bash
# Runs `make test`, or other targets, under the CPython of a Debian suite: scripts/test_python.sh SUITE [TARGET...]
# Makes a tree of Debian, runs them there on a copy of this checkout, and removes it. Requires root and debootstrap.
# Packages come from where this machine's apt and pip take them.
set -euo pipefail
suite=$1
shift
cd "$(dirname "$0")/.."
tree=$(mktemp -d -t "interlingua-$suite.XXXXXX")
trap 'rm -rf --one-file-system "$tree" "$tree.log"' EXIT
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Created-By: Packages' | sed -n 1p)
debootstrap --variant=minbase --include=python3,python3-venv,python3-dev,make,gcc,libc6-dev,git,ca-certificates,libgomp1 \
    "$suite" "$tree" ${mirror:+"$mirror"} > "$tree.log" || { tail "$tree.log"; exit 1; }
for settings in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /etc/pip.conf /etc/xdg/pip ~/.config/pip; do
    [[ ! -e $settings ]] || cp --recursive --dereference --parents "$settings" "$tree"
done
mkdir "$tree/checkout"
git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from - | tar --extract --directory "$tree/checkout"
# what is mounted and what runs inside ends with its namespaces
unshare --mount --pid --fork --kill-child bash -euc '
    mount --rbind /dev "$0/dev"
    mount --rbind /sys "$0/sys"
    mount --types proc proc "$0/proc"
    exec chroot "$0" make --directory /checkout "$@"
' "$tree" "${@:-test}"
