package policy_test

import (
	"sync"
	"testing"
)

// An action is shared by all calls, and the values of its defaults by all of them too; the race detector watches.
func TestAnActionIsSharedByConcurrentCalls(t *testing.T) {
	a := compile(t, edit(t, plain, "approval: session", "approval: args.count > 0 && size(args.labels) > 0", "labels: {type: array, items: {type: string}}", "labels: {type: array, items: {type: string}, default: [a]}",
		"express: {type: boolean}", "box: {type: object, default: {}, properties: {h: {type: integer, default: 3}}}"))
	want := a.Fingerprint(mac, prepare(t, a, `{"to":"a"}`), "deb:agent", "run:1")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				p, err := a.Prepare([]byte(`{"to":"a"}`))
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := a.Render(p, id); err != nil {
					t.Error(err)
				}
				if ask, _, err := a.PerUse(p); !ask || err != nil {
					t.Errorf("asks %v, %v", ask, err)
				}
				if a.Fingerprint(mac, p, "deb:agent", "run:1") != want {
					t.Error("another fingerprint")
				}
			}
		})
	}
	group.Wait()
}
