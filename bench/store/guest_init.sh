#!/bin/busybox sh
# First program of the guest of store_inputs: mounts the root under test and the disk with its work, and does the work.
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
while read -r module; do busybox insmod "/modules/$module"; done < /modules/order
busybox mount -t ext4 /dev/vda /new
busybox mkdir -p /new/mnt /new/proc /new/dev /new/srv  # packages that were only unpacked do not make them all
busybox mount -t ext4 -o ro /dev/vdb /new/mnt
busybox mount -t proc proc /new/proc
busybox mount -t devtmpfs dev /new/dev
busybox stty -F /dev/ttyS0 -echo
busybox chroot /new /bin/sh /mnt/work < /dev/ttyS0 > /dev/ttyS0 2>&1
echo "the work has ended" > /dev/ttyS0
busybox poweroff -f
