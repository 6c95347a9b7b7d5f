package peer

// UnitOf reads the text of /proc/PID/cgroup.
var UnitOf = unitOf
