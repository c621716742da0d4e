#!/bin/sh
# Runs what the conformance suite needs, once `make kotlin` has built it: run.sh codec | client URL
here=$(cd "$(dirname "$0")" && pwd)
# Short-lived: what starts quickly, not what runs fast for hours.
exec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto \
  -cp "$here/build/classes:$(cat "$here/build/classpath")" pheby.conformance.MainKt "$@"
