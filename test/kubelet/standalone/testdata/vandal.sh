# Does the harm of a kubelet that takes its working directory for a log folder, and worse, and reports
# for each act whether it succeeded. Arguments: a folder beside the node, the caller's working
# directory, the node's folder.
act() { name=$1; shift; if "$@" 2>/dev/null; then echo "$name: done"; else echo "$name: refused"; fi; }
echo "in $(pwd)"
echo "temporary $TMPDIR"
act "remove the canary beside the node" rm "$1/canary"
act "remove the canary in the caller's working directory" rm "$2/canary"
act "write to the node's manifests" touch "$3/static/x"
act "write to /" mkdir /canary-of-standalone
act "write to /tmp" touch /tmp/canary-of-standalone
act "write to /proc" sh -c 'echo 1 > /proc/sys/vm/overcommit_memory'
act "write to a cgroup" mkdir /sys/fs/cgroup/canary-of-standalone
act "write to /var/lib" touch /var/lib/canary-of-standalone
act "write to /var/log" touch /var/log/canary-of-standalone
act "write to /var/cache" touch /var/cache/canary-of-standalone
act "write to its root" touch "$3/root/x"
act "write to its temporary folder" touch "$TMPDIR/x"
act "remove all of its working directory" sh -c 'rm *'
# A kubelet binds its folder over itself unless it is a shared mount.
if awk -v root="$3/root" '$5 == root && /shared:/ { found = 1 } END { exit !found }' /proc/self/mountinfo; then
	echo 'its root is a shared mount'
fi
