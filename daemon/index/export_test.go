package index

import "maps"

// Dump returns every row as it would be read now.
func (ix *Index) Dump() (map[string]string, error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	all, err := ix.s.store.all()
	if err != nil {
		return nil, err
	}
	rows := make(map[string]string)
	for key, value := range all {
		rows[key] = string(value)
	}
	merged := maps.Clone(ix.s.flushing)
	if merged == nil {
		merged = overlay{}
	}
	maps.Copy(merged, ix.s.active)
	for key, v := range merged {
		b, err := encode(v)
		if err != nil {
			return nil, err
		}
		rows[key] = string(b)
	}
	return rows, nil
}

// Crash lets go of the file as the end of the process would.
func (ix *Index) Crash() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.s.store.broken.Store(true)
	return ix.s.store.db.Close()
}

// LimitFile makes the file grow no further, as a full disk would; 0 lifts that.
func (ix *Index) LimitFile(full bool) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.s.store.db.MaxSize = 0
	if full {
		ix.s.store.db.MaxSize = 1
	}
}
