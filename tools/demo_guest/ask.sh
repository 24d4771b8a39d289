#!/bin/sh
# Prints "RAM FILE" of the running counter.
cd /home/user || exit 1
rm -f report
pkill -USR1 -f demo/counter.py || { echo "the counter is not running" >&2; exit 1; }
for _ in $(seq 400); do
  [ -e report ] && exec cat report
  sleep 0.05
done
echo "the counter does not answer" >&2
exit 1
