// Package sqlitebench measures the journal beside SQLite in WAL mode with synchronous=FULL, both durable
// per record, on the same disk in one run:
//
//	cd daemon/journal/internal/sqlitebench && go test -bench .
//
// It is a module of its own, so that SQLite (the C library, by cgo) stays out of what singlepass.dev
// requires. SQLite gets what suits it best: one connection that all writers share, because more of
// them poll for the lock, one prepared statement, and a table with nothing but the row. The two take turns
// in rounds, and the ratio is that of the medians.
package sqlitebench
