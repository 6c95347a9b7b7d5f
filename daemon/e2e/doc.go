// Package e2e holds the end-to-end tests: real MCP clients drive the real spd and spctl, built without cgo, against a
// target that commits an effect before it answers (package ledger), while answers, connections and processes are lost.
//
// It promises nothing to importers; its tests are its content. They need Node.js 20 and npm beside Go: `bash .ci/setup`.
package e2e
