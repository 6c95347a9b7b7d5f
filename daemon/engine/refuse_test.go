package engine_test

import (
	"context"
	"testing"

	"singlepass.dev/daemon/api"
)

func TestARefusedCallIsToldToThoseWhoWatch(t *testing.T) {
	r := newRig(t)
	a := newAgent("1")
	r.trust(a)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	_, changes := r.Watch(ctx)
	r.want(r.call(background, a, "no_such_tool", `{}`), api.CodeActionUnknown, 0)
	for c := range changes {
		if c.Kind != "refused" {
			continue
		}
		if x := c.Refused; x.Code != api.CodeActionUnknown || x.Tool != "no_such_tool" || x.Run != a.Run || x.Caller == nil || x.Caller.Call == "" || x.At.IsZero() {
			t.Errorf("told %+v", x)
		}
		return
	}
	t.Fatal("nobody was told")
}
