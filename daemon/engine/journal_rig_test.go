package engine_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"

	"singlepass.dev/daemon/journal"
)

// kinds returns the kinds of all entries, after everything before it is durable.
func (r *rig) kinds() []string {
	r.t.Helper()
	if err := r.Note(struct {
		Kind string `json:"kind"`
	}{"test_barrier"}); err != nil {
		r.t.Fatal(err)
	}
	var out []string
	if err := r.records.Journal().Read(journal.Position{}, func(d journal.Durable) error {
		var line struct {
			Entry struct {
				Kind string `json:"kind"`
				Code string `json:"code"`
			} `json:"entry"`
		}
		if err := json.Unmarshal(d.Line, &line); err != nil {
			return err
		}
		out = append(out, line.Entry.Kind)
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return out
}

func journalFiles(dir string) []string {
	m, _ := filepath.Glob(filepath.Join(dir, "journal", "*"))
	return m
}

// written returns all that lies in the journal's files.
func (r *rig) written() (all []byte) {
	r.t.Helper()
	r.kinds() // what was lazy is there then
	if err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all = append(all, b...)
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	return all
}
