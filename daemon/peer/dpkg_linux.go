package peer

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// dpkg finds the Debian package that a file belongs to, as `dpkg -S` does, by its file lists.
type dpkg struct {
	folder string

	mu      sync.Mutex
	changed time.Time         // owner: mu; of the folder, when found was begun
	found   map[string]string // owner: mu; path → package, "" for none
}

func (d *dpkg) owner(path string) string {
	info, err := os.Stat(d.folder)
	if err != nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found == nil || !info.ModTime().Equal(d.changed) {
		d.found, d.changed = make(map[string]string), info.ModTime()
	}
	name, known := d.found[path]
	if !known {
		name = d.look(path)
		d.found[path] = name
	}
	return name
}

func (d *dpkg) look(path string) string {
	lists, err := filepath.Glob(filepath.Join(d.folder, "*.list"))
	if err != nil {
		return ""
	}
	wanted := [][]byte{[]byte("\n" + path + "\n")}
	// Since the merge of / and /usr a list may name a file by its old place.
	if old, merged := strings.CutPrefix(path, "/usr"); merged {
		wanted = append(wanted, []byte("\n"+old+"\n"))
	}
	for _, list := range lists {
		content, err := os.ReadFile(list)
		if err != nil {
			continue
		}
		for _, line := range wanted {
			if bytes.Contains(content, line) {
				name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(list), ".list"), ":")
				return name
			}
		}
	}
	return ""
}
