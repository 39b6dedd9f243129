#!/usr/bin/env bash
# Make sure a command exists, installing its Debian package when we are allowed to.
# Usage: tools/need.sh COMMAND PACKAGE. Ends with 0 when COMMAND can be run, otherwise says what to install.
set -euo pipefail

command_name=$1
package=$2

if command -v "$command_name" >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "need: $command_name is missing; installing the package $package" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2
    apt-get install -y -qq --no-install-recommends "$package" >&2
    command -v "$command_name" >/dev/null 2>&1 && exit 0
fi
echo "need: $command_name is missing; please install it (Debian and Ubuntu: apt-get install $package)" >&2
exit 1
