#!/bin/busybox sh
# The first process of a guest: mounts what programs expect, runs the jobs, turns the machine off.
#
# Jobs are the files of /jobs, in the order of their names; what is told of each stands alone on a line that
# begins with @guest: begin NAME, end NAME STATUS MS.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev 2>/dev/null
/bin/busybox --install -s /bin 2>/dev/null # what is there already stays
mkdir -p /dev/pts /dev/shm /tmp /run /var/tmp
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tracefs tracing /sys/kernel/tracing
mount -t cgroup2 cgroup /sys/fs/cgroup 2>/dev/null
ln -sf /proc/self/fd /dev/fd
ip link set lo up 2>/dev/null
hostname guest
export PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root TERM=vt100 GUEST=1 TL_SLOW=10
mkdir -p /root
cd /root || exit 1
exec </dev/console >/dev/console 2>&1
stty -echo -onlcr

ms() {
    read -r seconds _ </proc/uptime
    echo "$((${seconds%.*} * 1000 + 1${seconds#*.}0 - 1000))" # a number that began with 0 would be octal
}

if [ -e /jobs/shell ]; then
    stty echo onlcr
    echo "Leave with exit; the machine goes off then."
    setsid cttyhack sh
else
    for job in /jobs/*; do
        read -r limit <"$job/limit"
        name=${job##*/????-}
        echo "@guest begin $name"
        before=$(ms)
        timeout -s KILL "$limit" sh "$job/run" </dev/null >/run/job.out 2>&1
        status=$?
        cat /run/job.out
        printf '\n@guest end %s %s %s\n' "$name" "$status" "$(($(ms) - before))"
    done
fi
sync
poweroff -f
