package cli

import (
	"bytes"
	"slices"

	"singlepass.dev/daemon/audit"
	"singlepass.dev/daemon/chain"
	"singlepass.dev/daemon/execution"
)

// story checks that every execution in the journal went a way that package execution allows, by the same function by which the daemon moves it.
func story() *audit.Story {
	kinds := execution.Kinds()
	mark := []byte(`"execution_id":"`)
	return &audit.Story{
		Key: func(l *chain.Line) []byte {
			if !slices.Contains(kinds, execution.Kind(l.Kind)) {
				return nil
			}
			_, rest, ok := bytes.Cut(l.Entry, mark)
			if !ok {
				return nil
			}
			id, _, _ := bytes.Cut(rest, []byte{'"'})
			return id
		},
		Teller: func() func([]byte, *chain.Line) error {
			known := map[string]execution.Execution{}
			var event []byte
			return func(key []byte, l *chain.Line) error {
				event = l.AppendEvent(event[:0])
				e, err := execution.DecodeEvent(event)
				if err != nil {
					return err
				}
				at, err := l.At()
				if err != nil {
					return err
				}
				e.At = at
				next, err := execution.Apply(known[string(key)], e)
				if err != nil {
					return err
				}
				known[string(key)] = next
				return nil
			}
		},
	}
}
