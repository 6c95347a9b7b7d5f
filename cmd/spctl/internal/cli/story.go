package cli

import (
	"bytes"
	"fmt"
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
			_, rest, ok := bytes.Cut(l.Members(), mark)
			if !ok {
				return nil
			}
			id, _, _ := bytes.Cut(rest, []byte{'"'})
			return id
		},
		Teller: func() func([]byte, *chain.Line) error {
			open, over := map[string]execution.Execution{}, map[string]execution.Outline{}
			var event []byte
			return func(key []byte, l *chain.Line) error {
				event = l.AppendEvent(event[:0])
				e, err := execution.DecodeEvent(event)
				if err != nil {
					return err
				}
				if e.ID != string(key) {
					return fmt.Errorf("the event is of execution %q and has %q before that", e.ID, key)
				}
				at, err := l.At()
				if err != nil {
					return err
				}
				e.At = at
				x, isOpen := open[string(key)]
				if o, ok := over[string(key)]; ok && !isOpen {
					x = o.Execution(e.ID)
				}
				next, err := execution.Apply(x, e)
				if err != nil {
					return err
				}
				// Of what is over an outline is kept: a long journal is mostly that, and the collector would look through all of it again and again.
				if o, ok := next.Outline(); ok {
					delete(open, string(key))
					over[string(key)] = o
				} else {
					open[string(key)] = next
				}
				return nil
			}
		},
	}
}
