package index_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"singlepass.dev/daemon/execution"
	"singlepass.dev/daemon/index"
)

// leaves calls f with every value in v that has no parts, and the way to it. A new kind of field fails here first.
func leaves(t testing.TB, way string, v reflect.Value, f func(way string, v reflect.Value)) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		f(way, v)
		return
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			leaves(t, way+"."+v.Type().Field(i).Name, v.Field(i), f)
		}
		return
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Array:
		for i := range v.Len() {
			leaves(t, fmt.Sprintf("%s[%d]", way, i), v.Index(i), f)
		}
		return
	}
	f(way, v)
}

// vary gives a leaf a value that it did not have.
func vary(t testing.TB, r *rand.Rand, way string, v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<40)-1<<33, r.Int64N(1e9)).UTC()))
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprintf("%x%s", r.Uint64(), bytes.Repeat([]byte("é\x00"), r.IntN(200))))
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanInt():
		v.SetInt(v.Int() ^ (1 + r.Int64()>>r.IntN(62)))
	case v.Kind() == reflect.Uint8:
		v.SetUint(v.Uint() ^ (1 + r.Uint64N(255)))
	case v.CanUint():
		v.SetUint(v.Uint() ^ (1 + r.Uint64()>>r.IntN(62)))
	default:
		t.Fatalf("%s is of a kind that is not stored: %s", way, v.Type())
	}
}

func fullRecord(t testing.TB, r *rand.Rand, callers int) *index.Record {
	record := &index.Record{
		X:       execution.Execution{Attempts: make([]execution.Attempt, 2), Callers: make([]execution.Caller, callers), Checks: make([]execution.Check, 2)},
		Earlier: make([]uint64, 9),
	}
	leaves(t, "", reflect.ValueOf(record).Elem(), func(way string, v reflect.Value) {
		if v.Kind() == reflect.Bool {
			v.SetBool(true)
			return
		}
		vary(t, r, way, v)
	})
	return record
}

func TestEveryFieldOfARecordIsStored(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const size = 8
	whole := make([]*index.Record, size)
	for i := range whole {
		whole[i] = fullRecord(t, r, 1+i%3)
	}
	whole[1], whole[2] = &index.Record{}, whole[0] // nothing, and the same again
	same(t, "full records", must[[]*index.Record](t)(index.DecodeGroup(index.EncodeGroup(whole))), whole)

	record := whole[4]
	fields := 0
	leaves(t, "", reflect.ValueOf(record).Elem(), func(way string, v reflect.Value) {
		before := reflect.New(v.Type()).Elem()
		before.Set(v)
		for _, change := range []func(){func() { vary(t, r, way, v) }, func() { v.SetZero() }} {
			change()
			if way == ".HasResult" || way == ".HasAwaited" { // without it there is no Result
				continue
			}
			b := index.EncodeGroup(whole)
			same(t, way, must[[]*index.Record](t)(index.DecodeGroup(b)), whole)
			for n, want := range whole {
				same(t, way, must[*index.Record](t)(index.DecodeOne(b, n)), want)
			}
		}
		v.Set(before)
		fields++
	})
	if fields < 100 {
		t.Errorf("only %d fields were tried", fields)
	}
}

func TestExtremeTimesAndNumbersAreStored(t *testing.T) {
	x := execution.Execution{
		AcceptedAt: time.Unix(0, 0).UTC(), ChangedAt: time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC), CompletedAt: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC),
		TargetStatus: math.MinInt, Dropped: math.MaxInt,
	}
	x.Retention, x.AttachWindow = math.MinInt64, math.MaxInt64
	group := []*index.Record{{X: x, Ordinal: math.MaxUint64, Last: index.Position{Segment: math.MinInt, Offset: math.MaxInt64, Seq: math.MaxUint64}}}
	same(t, "record", must[[]*index.Record](t)(index.DecodeGroup(index.EncodeGroup(group))), group)
}

func FuzzAMalformedGroupIsRefused(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	f.Add(index.EncodeGroup([]*index.Record{fullRecord(f, r, 2), {}, fullRecord(f, r, 0)}))
	f.Add([]byte{1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		group, err := index.DecodeGroup(b)
		if err != nil {
			notAuthentic(t, "decoding", err)
			return
		}
		again, err := index.DecodeGroup(index.EncodeGroup(group))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "again", again, group)
	})
}

// More than one row of summaries, so that searches pass over pages in the file and in memory.
func TestSearchesMissNothingInManyPages(t *testing.T) {
	ix := unlocked(t, file(t))
	const n = 9000
	var model []execution.Execution
	entries := calls(0, n)
	r := rand.New(rand.NewPCG(5, 6))
	for i := 0; i < len(entries); i += 5 {
		a := *entries[i].Decoded.Acceptance
		a.Tool, a.Run, a.Retention = "deploy", fmt.Sprintf("run_%d", i/5/400), 0
		if r.IntN(700) == 0 {
			a.Tool, a.Credential, a.Retention = "rare", fmt.Sprintf("credential-%d", i), time.Second
		}
		entries[i].Decoded.Acceptance = &a
		var x execution.Execution
		for _, e := range entries[i : i+5] {
			ev := *e.Decoded
			ev.At = e.Time
			x = must[execution.Execution](t)(execution.Apply(x, ev))
		}
		model = append(model, x)
	}
	fold(t, ix, entries[:len(entries)/2+3])
	flush(t, ix)
	fold(t, ix, entries[len(entries)/2+3:])
	rare := func(x execution.Execution) bool { return x.Tool == "rare" }
	middle := model[n/2].AcceptedAt
	for range 2 {
		for what, c := range map[string]struct {
			q index.Query
			f func(execution.Execution) bool
		}{
			"tool":       {index.Query{Tool: "rare"}, rare},
			"run":        {index.Query{Run: "run_7"}, func(x execution.Execution) bool { return x.Run == "run_7" }},
			"credential": {index.Query{Credential: model[0].Credential, Tool: "rare"}, func(x execution.Execution) bool { return rare(x) && x.Credential == model[0].Credential }},
			"since":      {index.Query{Since: middle, Tool: "rare"}, func(x execution.Execution) bool { return rare(x) && !x.AcceptedAt.Before(middle) }},
			"until":      {index.Query{Until: middle, Tool: "rare"}, func(x execution.Execution) bool { return rare(x) && x.AcceptedAt.Before(middle) }},
			"states":     {index.Query{States: []execution.State{execution.Delivered, execution.Unknown}}, func(execution.Execution) bool { return true }},
			"no state":   {index.Query{States: []execution.State{execution.Unknown}}, func(execution.Execution) bool { return false }},
		} {
			var want []execution.Execution
			for i := len(model) - 1; i >= 0; i-- {
				if c.f(model[i]) {
					want = append(want, model[i])
				}
			}
			c.q.Limit = n
			same(t, what, must[[]execution.Execution](t)(ix.List(c.q)), want)
		}
		var due []execution.Execution
		for _, x := range model {
			if rare(x) {
				due = append(due, x)
			}
		}
		same(t, "prunable", must[[]execution.Execution](t)(ix.Prunable(model[n-1].ChangedAt.Add(time.Hour), n)), due)
		same(t, "prunable first", must[[]execution.Execution](t)(ix.Prunable(model[n-1].ChangedAt.Add(time.Hour), 2)), due[:2])
		flush(t, ix)
	}
}
