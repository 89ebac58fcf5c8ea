#!/bin/sh
# SPDX-FileCopyrightText: The Evented PLEG Authors
# SPDX-License-Identifier: Apache-2.0
#
# Plays systemd-run, systemctl, journalctl and sudo, by the name under which it is called, as far as
# the suite calls them. A unit is a folder with its command, its log and the ID of its process.
units=${UNITS:-/mnt/units}

running() { # UNIT: it has a process, which is no zombie
	[ -s "$1/pid" ] && grep -qs '^State:.[^ZX]' "/proc/$(cat "$1/pid")/status"
}
start() { # UNIT
	running "$1" && return
	setsid sh "$1/command" </dev/null >>"$(cat "$1/log")" 2>&1 &
	echo $! >"$1/pid"
}
stop() { # UNIT: by force after 15 s
	running "$1" && kill "$(cat "$1/pid")"
	tenths=0
	while running "$1"; do
		sleep 0.1
		[ $((tenths += 1)) -ne 150 ] || kill -KILL "$(cat "$1/pid")"
	done
}

case ${0##*/} in
sudo) exec "$@" ;;
journalctl) exit ;; # logs are files
systemd-run)
	log=/dev/null unit=$units/unit.service
	while :; do
		case $1 in
		--version) echo 'systemd 252 (stand-in)' && exit ;;
		-p) shift && case $1 in StandardError=append:*) log=${1#*:} ;; esac ;;
		--unit=*) unit=$units/${1#*=} ;;
		-*) ;;
		*) break ;;
		esac
		shift
	done
	mkdir -p "$unit"
	printf %s "$log" >"$unit/log"
	printf exec >"$unit/command"
	for arg; do printf " '%s'" "$(printf %s "$arg" | sed "s/'/'\\\\''/g")" >>"$unit/command"; done
	start "$unit"
	exit
	;;
esac

verb=$1 signal=TERM
shift
case "$verb $*" in
*--signal=*KILL*) signal=KILL ;;
esac
if [ "$verb" = list-units ]; then
	for unit in "$units"/*.service; do
		if running "$unit"; then
			echo "  ${unit##*/} loaded active running stand-in"
		elif ! echo "$*" | grep -q state=running; then
			echo "  ${unit##*/} loaded active exited stand-in"
		fi
	done
	exit
fi
for arg; do
	case $arg in -*) continue ;; esac
	unit=$units/${arg%.service}.service
	case $verb in
	start) start "$unit" ;;
	restart) stop "$unit" && start "$unit" ;;
	stop) stop "$unit" ;;
	kill) if running "$unit"; then kill -s "$signal" "$(cat "$unit/pid")"; fi ;;
	is-active) if running "$unit"; then echo active; else exit 3; fi ;;
	reset-failed | mask) ;;
	*) echo "systemctl $verb is not played" >&2 && exit 1 ;;
	esac || exit
done
