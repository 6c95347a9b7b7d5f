package index

import (
	"encoding/json"
	"fmt"
)

// Dump returns everything as it would be read now.
func (ix *Index) Dump() (map[string]string, error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	all, err := ix.s.all()
	if err != nil {
		return nil, err
	}
	rows := make(map[string]string)
	for i, r := range all.records {
		rows["execution "+r.X.ID] = fmt.Sprintf("%d %+v", i, *r)
	}
	for i, h := range all.heads {
		rows[fmt.Sprint("head ", i)] = fmt.Sprintf("%+v", h)
	}
	for id, r := range all.runs {
		b, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		rows["run "+id] = string(b)
	}
	rows["runs"] = fmt.Sprint(all.runList)
	rows["refusals"] = fmt.Sprint(all.refusals)
	for _, r := range all.records { // the salt differs between files
		x := &r.X
		rows["finds "+x.ID] = fmt.Sprint(all.ordinals[ix.s.store.idPlace(x.ID)], all.ordinals[ix.s.store.matchPlace(x.Actor, x.Scope, x.Fingerprint)])
	}
	return rows, nil
}

// Crash lets go of the file as the end of the process would.
func (ix *Index) Crash() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	st := ix.s.store
	st.broken.Store(true)
	st.begin.Lock()
	defer st.begin.Unlock()
	st.letGo()
	return st.db.Close()
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

// Record is a record as it is stored.
type Record = record

// EncodeGroup returns the stored form of neighbours.
func EncodeGroup(group []*Record) []byte { return encodeGroup(nil, group) }

// DecodeGroup reads it back.
func DecodeGroup(b []byte) ([]*Record, error) { return decodeRecords(b) }

// DecodeOne reads one record of a group back.
func DecodeOne(b []byte, n int) (*Record, error) { return decodeRecord(b, n) }
