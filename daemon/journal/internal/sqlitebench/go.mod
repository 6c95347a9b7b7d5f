module singlepass.dev/daemon/journal/internal/sqlitebench

go 1.26.0

require singlepass.dev v0.0.0

require (
	github.com/mattn/go-sqlite3 v1.14.53
	golang.org/x/sys v0.50.0 // indirect
)

replace singlepass.dev => ../../../..
