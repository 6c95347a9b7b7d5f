# Singlepass marker, version 1. POSIX sh and its usual utilities, and sync.
# $1 this script  $2 what to do  $3 name of the attempt  $4 folder, or nothing  $5 word that begins an answer  $6 blocks of 64 KiB
op=$2 name=$3 folder=$4 word=$5 blocks=$6
mask=$(umask)
home=$PWD
umask 077

say() { printf "%s %s\n" "$word" "$*"; }

# flush makes what was written last a crash of the host.
flush() { sync "$@" 2>/dev/null || sync 2>/dev/null; }

# enter goes into the folder, and looks at it only from inside, where nobody can exchange it any more.
enter() {
	[ -n "$folder" ] || folder=${HOME:?}/.singlepass
	if [ "$1" = make ] && [ ! -d "$folder" ]; then
		mkdir -p -- "$folder" 2>/dev/null
	fi
	cd -P -- "$folder" 2>/dev/null || return 1
	set -- $(ls -ldn .)
	case $1 in drwx------*) ;; *) say unfit mode; exit 0 ;; esac
	[ "$3" = "$(id -u)" ] || { say unfit owner; exit 0; }
}

# store names the folder's state, the time by the host's clock, and the time at which that state began.
store() { cat store; date +%s; cat born; }

is_listed() { [ -f cleaned ] && grep -qxF "$1" cleaned; }

# clean lets go of what is old enough, and keeps its name for ever, so that it is not taken for something that never started.
clean() {
	find . ! -name . -prune -type d -name "act_*" -mtime +0 -print | while read -r old; do
		old=${old#./}
		[ -f "$old/status" ] || [ -f "$old/refused" ] || continue
		days=7
		[ ! -f "$old/keep" ] || read -r days <"$old/keep"
		[ -n "$(find "./$old" -prune -mtime +"$days" -print)" ] || continue
		printf "%s\n" "$old" >>cleaned
		flush cleaned || return
		mv "$old" "gone.$old" && rm -rf "gone.$old"
	done
	find . ! -name . -prune -type f -name "*.in" -mtime +1 -exec rm -f {} +
}

alive() {
	[ -f "$name/pid" ] && read -r pid <"$name/pid" || return 1
	kill -0 "$pid" 2>/dev/null || return 1
	if [ -r "/proc/$pid/cmdline" ]; then
		tr "\000" "\n" <"/proc/$pid/cmdline" | grep -qF "$name"
		return
	fi
	line=$(ps -o args= -p "$pid" 2>/dev/null) || return 0
	case $line in *"$name"*) return 0 ;; esac
	return 1
}

# report says how it ended, and then the output, on the stream that it was written to.
report() {
	read -r status <"$name/status"
	say finished "$status" "$(($(wc -c <"$name/out")))" "$(($(wc -c <"$name/err")))" $(store)
	printf "%s\n" "$word" >&2
	[ "$blocks" -eq 0 ] || dd if="$name/out" bs=65536 count="$blocks" 2>/dev/null
	[ "$blocks" -eq 0 ] || dd if="$name/err" bs=65536 count="$blocks" >&2 2>/dev/null
	exit 0
}

case $op in
prepare)
	enter make || { say unfit folder; exit 0; }
	if [ ! -f born ]; then # made after store, so that a store without it is not finished
		(printf "%s\n" "$word" >"store.$$" && ln "store.$$" store) 2>/dev/null
		(date +%s >"born.$$" && flush "store.$$" "born.$$" && ln "born.$$" born) 2>/dev/null
		rm -f "store.$$" "born.$$"
		flush .
	fi
	[ -f store ] && [ -f born ] || { say unfit write; exit 0; }
	clean
	say ready $(store)
	;;
start)
	size=$7 keep=$8 command=$9
	enter || { say unfit folder; exit 0; }
	# All of the input first: a command never runs on a part of it.
	if [ "$size" -gt 0 ]; then
		cat >"$name.$$.in" && [ "$(($(wc -c <"$name.$$.in")))" -eq "$size" ] || { rm -f "$name.$$.in"; say short; exit 0; }
	fi
	if is_listed "$name" || ! mkdir "$name" 2>/dev/null; then
		rm -f "$name.$$.in"
		say again
		exit 0
	fi
	printf "%s\n" "$keep" >"$name/keep"
	[ "$size" -eq 0 ] || mv "$name.$$.in" "$name/in"
	[ "$size" -gt 0 ] || : >"$name/in"
	if ! flush "$name" .; then
		: >"$name/refused"
		say unfit sync
		exit 0
	fi
	if command -v setsid >/dev/null 2>&1; then
		setsid sh -c 'eval "$1"' singlepass "$1" run "$name" "$folder" "$word" "$blocks" "$mask" "$home" "$command" </dev/null >/dev/null 2>&1 &
	else
		trap "" HUP
		sh -c 'eval "$1"' singlepass "$1" run "$name" "$folder" "$word" "$blocks" "$mask" "$home" "$command" </dev/null >/dev/null 2>&1 &
	fi
	wait "$!"
	while [ ! -f "$name/status" ] && alive; do sleep 1; done
	[ -f "$name/status" ] || { say lost $(store); exit 0; }
	report
	;;
run)
	mask=$7 home=$8 command=$9
	enter && cd "$name" || exit 1
	printf "%s\n" "$$" >pid.new && mv pid.new pid
	(umask "$mask"; cd -- "$home" && exec sh -c "$command") <in >out 2>err
	printf "%s\n" "$?" >status.new
	flush out err status.new
	mv status.new status
	flush .
	;;
ask)
	enter || { say gone; exit 0; }
	[ -f store ] && [ -f born ] || { say gone; exit 0; }
	tries=0
	while :; do
		if [ -d "$name" ]; then
			[ ! -f "$name/status" ] || report
			[ ! -f "$name/refused" ] || { say never $(store); exit 0; }
			! alive || { say running $(store); exit 0; }
			# It has only just begun, or just ended; or it is lost.
			if [ "$tries" -ge 4 ] && [ ! -f "$name/status" ]; then
				say lost $(store)
				exit 0
			fi
		elif is_listed "$name"; then
			say cleaned $(store)
			exit 0
		elif mkdir "$name" 2>/dev/null; then
			# Whatever is still on its way finds the name taken, and does not start.
			: >"$name/refused" && flush "$name" . || { say lost $(store); exit 0; }
		fi
		tries=$((tries + 1))
		[ -f "$name/refused" ] || [ -f "$name/status" ] || sleep 1
	done
	;;
esac
